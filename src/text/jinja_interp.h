// The evaluator of the template language: runs one parsed Program over one context.
//
// One Interp serves one render on one thread and owns everything that changes during it (scopes, namespaces,
// loops, macros). Steps, nesting, text size and data size are limited as TemplateLimits says; every breach is
// a TemplateError. The Program and the context must outlive it.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja_ast.h"

namespace isthmus::jinja {

/// Evaluated arguments of a call, filter or test.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<NameId, Value>> variables;

  Value* find(NameId name);
  void set(NameId name, Value value);
};

/// A macro as defined at run time: its text and the scope around it.
struct Macro {
  const MacroDef* def;
  std::shared_ptr<Scope> closure;
};

class Interp {
 public:
  Interp(const Program& program, const TemplateLimits& limits, const nlohmann::ordered_json& context,
         int64_t now);

  std::string run();

  // For filters, tests, methods and global functions.
  Budget& budget() { return budget_; }
  int64_t now() const { return now_; }
  Value call(const Value& callee, Args args);
  Namespace* new_namespace();
  /// Offset of what is being evaluated: where an error belongs.
  Offset at() const { return at_; }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Capture;
  // Counts one level of nesting, and one step, while it lives.
  class Deeper {
   public:
    explicit Deeper(Interp& in) : in_(in) {
      if (++in_.nesting_ > in_.max_nesting_) {
        --in_.nesting_;
        fail(Code::kResourceExhausted, "the template nests evaluation deeper than the limit");
      }
      in_.budget_.charge();
    }
    ~Deeper() { --in_.nesting_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Interp& in_;
  };

  Flow exec_block(const Block& block);
  Flow exec(const Stmt& stmt);
  Flow exec_if(const Stmt& stmt);
  Flow exec_for(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt, const Value& iterable, uint32_t depth0);
  Flow run_iteration(const Stmt& stmt, LoopState& loop, bool lazy_filter, bool* completed);
  bool passes_filter(const Stmt& stmt, const Value& item);
  /// Runs a block with its output going through the chain of filters into *value.
  Flow capture_block(const Stmt& stmt, Value* value);
  Flow exec_set_block(const Stmt& stmt);
  Flow exec_filter_block(const Stmt& stmt);
  Flow exec_with(const Stmt& stmt);
  Flow exec_scope(const Stmt& stmt);
  void exec_call_block(const Stmt& stmt);
  void exec_macro(const Stmt& stmt);
  void assign(const Target& target, const Value& value);
  void enter_scope();
  void leave_scope();

  Value eval(const Expr& expr);
  Value eval_items(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_binary(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_logic(const Expr& expr);
  Value eval_sign(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_cond(const Expr& expr);
  Value eval_postfix(const Expr& expr, size_t steps);
  Value apply(const Value& value, const Postfix& step);
  Value apply_slice(const Value& value, const Postfix& step);
  Args eval_args(const CallArgs& args);
  Value lookup(NameId name);
  Value call_macro(const Macro& macro, Args args);
  void bind_macro(const Macro& macro, Args& args);
  Value call_loop(LoopState& loop, const Args& args);

  const Program& program_;
  const nlohmann::ordered_json& context_;
  Budget budget_;
  int64_t now_;
  uint32_t max_nesting_;
  uint32_t max_calls_;
  uint32_t nesting_ = 0;
  uint32_t calls_ = 0;
  Offset at_ = 0;
  std::optional<NameId> loop_name_, varargs_name_, kwargs_name_, caller_name_;
  std::vector<std::optional<Value>> outer_;  // by NameId: context variables and globals already looked up
  std::shared_ptr<Scope> scope_;
  Sink* out_ = nullptr;
  // Owned here, pointed to by values. Deques: addresses stay.
  std::deque<Namespace> namespaces_;
  std::deque<LoopState> loops_;
  std::deque<Macro> macros_;
};

/// Binds arguments to parameter names as Python does: one entry per name, null where none was given. The
/// first `required` must be given; too many, unknown or double ones fail. `what` names the function in
/// errors.
std::vector<const Value*> bind(const Args& args, std::string_view what,
                               std::initializer_list<std::string_view> names, size_t required = 0);

// Operators (jinja_ops.cc).
Value binary(Interp& in, Op op, const Value& a, const Value& b);
bool compare(Interp& in, Op op, const Value& a, const Value& b);
Value negate(const Value& value);
int64_t to_index(const Value& value, std::string_view what);

// The function tables (jinja_filters*.cc, jinja_predicates.cc, jinja_methods.cc, jinja_globals.cc).
Value call_filter(Interp& in, const std::string& name, const Value& input, const Args& args);
bool call_test(Interp& in, const std::string& name, const Value& input, const Args& args);
Value call_method(Interp& in, const Value& self, const std::string& name, const Args& args);
Value call_global(Interp& in, const std::string& name, const Args& args);
bool is_global(std::string_view name);

// Text formatting (jinja_format.cc): "…" % value, "…".format(…).
std::string format_percent(Interp& in, const std::string& format, const Value& value);
std::string format_braces(Interp& in, const std::string& format, const Args& args);

// JSON (jinja_json.cc).
Value from_json(const nlohmann::ordered_json& json, uint64_t max_bytes);
struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator;
  std::string key_separator;
};
void write_json(Sink& sink, const Value& value, const JsonStyle& style);

}  // namespace isthmus::jinja
