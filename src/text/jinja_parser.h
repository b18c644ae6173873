// Recursive-descent parser of the template language; jinja_parser.cc has the expressions, jinja_statements.cc
// the tags. Nesting is counted and limited; long chains are loops. Used only by parse_program().
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace isthmus::jinja {

class Parser {
 public:
  Parser(Program& program, uint32_t max_depth)
      : program_(program), tokens_(tokenise(program.source)), max_depth_(max_depth) {}

  Block parse_template();

 private:
  // Counts one level of nesting while it lives.
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > parser_.max_depth_) {
        --parser_.depth_;
        fail(Code::kResourceExhausted, "the template is nested deeper than the limit", parser_.cur().at);
      }
    }
    ~Nest() { --parser_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    Parser& parser_;
  };
  // Sets a member for the time of a scope.
  template <class T>
  class Saved {
   public:
    Saved(T& variable, T value) : variable_(variable), old_(variable) { variable = value; }
    ~Saved() { variable_ = old_; }
    Saved(const Saved&) = delete;
    Saved& operator=(const Saved&) = delete;

   private:
    T& variable_;
    T old_;
  };

  const Token& cur() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[pos_ + 1 < tokens_.size() ? pos_ + 1 : pos_]; }
  const Token& next() { return tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name();
  void expect_block_end();
  [[noreturn]] void error(std::string message) const { fail(Code::kCorrupt, std::move(message), cur().at); }
  [[noreturn]] void error_expected(std::string_view what) const;
  NameId intern(const std::string& name);

  // Expressions.
  struct TupleMode {
    bool simplified = false;  // primaries only: assignment targets
    bool conditional = true;  // "a if b else c" allowed
    bool parenthesised = false;
    std::string_view end_name;  // a name that also ends the tuple
  };
  ExprPtr parse_expression(bool conditional = true);
  ExprPtr parse_conditional(ExprPtr first);
  ExprPtr parse_climb(int min_level);
  ExprPtr parse_not();
  ExprPtr parse_unary();
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_tuple(const TupleMode& mode);
  bool at_tuple_end(std::string_view end_name) const;
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr base, bool filters);
  Postfix parse_subscript();
  void parse_subscript_part(std::vector<ExprPtr>& parts, bool* slice);
  Postfix parse_call();
  void parse_call_args(CallArgs& args);
  Postfix parse_filter();
  Postfix parse_test();
  std::string parse_dotted_name();
  ExprPtr make(Expr::Kind kind, Offset at);

  // Statements.
  Block parse_block(std::initializer_list<std::string_view> ends, bool drop_end);
  Block parse_body(std::initializer_list<std::string_view> ends);
  std::unique_ptr<Stmt> parse_statement();
  void parse_if(Stmt& stmt);
  void parse_for(Stmt& stmt);
  void parse_set(Stmt& stmt);
  void parse_macro(Stmt& stmt);
  void parse_call_block(Stmt& stmt);
  void parse_filter_block(Stmt& stmt);
  void parse_with(Stmt& stmt);
  void parse_print(Stmt& stmt);
  void parse_loop_control(Stmt& stmt, bool is_break);
  void parse_generation(Stmt& stmt);
  void parse_signature(MacroDef& macro);
  void parse_macro_body(MacroDef& macro, std::string_view end);
  Target parse_target(bool with_namespace, std::string_view end_name);
  Target parse_target_part(bool with_namespace);
  Block parse_inner(std::initializer_list<std::string_view> ends, bool drop_end);

  Program& program_;
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  uint32_t depth_ = 0;
  uint32_t max_depth_;
  bool in_loop_ = false;
  // Unknown filters and tests met so far. Inside a condition jinja2 lets them pass until they are used;
  // anywhere else it refuses the template.
  std::vector<TemplateError> unknown_;
  std::vector<MacroDef*> macros_;  // the definitions around the current position
  std::vector<Stmt*> loops_;       // the loops around it
  std::unordered_map<std::string, NameId> name_ids_;
};

/// Whether a filter or test of this name exists (jinja_filters.h, jinja_predicates.h).
bool is_known_filter(std::string_view name);
bool is_known_test(std::string_view name);

}  // namespace isthmus::jinja
