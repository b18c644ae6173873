// The tags of the template language: the statement half of the parser.
#include <algorithm>
#include <array>

#include "text/jinja_parser.h"

namespace isthmus::jinja {
namespace {

constexpr std::array kUnavailableTags = {"include", "import", "from", "extends", "block", "autoescape"};

}  // namespace

Block Parser::parse_template() {
  Block body = parse_block({}, false);
  if (!unknown_.empty()) throw TemplateError(unknown_.front());
  return body;
}

void Parser::expect_block_end() {
  if (cur().type != TokenType::kBlockEnd) error_expected("'%}'");
  next();
}

// Statements up to a tag named in `ends` (or the end of the template when there is none); stands on its name.
Block Parser::parse_block(std::initializer_list<std::string_view> ends, bool drop_end) {
  const Nest nest(*this);
  Block body;
  for (;;) {
    const Offset at = cur().at;
    if (cur().type == TokenType::kEnd) {
      if (ends.size() == 0) return body;
      error("unexpected end of template; expected '" + std::string(*std::prev(ends.end())) + "'");
    }
    if (cur().type == TokenType::kData) {
      auto stmt = std::make_unique<Stmt>();
      stmt->at = at;
      stmt->text = next().text;
      body.push_back(std::move(stmt));
    } else if (cur().type == TokenType::kVariableBegin) {
      next();
      auto stmt = std::make_unique<Stmt>();
      stmt->kind = Stmt::Kind::kPrint;
      stmt->at = at;
      stmt->expr = parse_tuple({});
      if (cur().type != TokenType::kVariableEnd) error_expected("'}}'");
      next();
      body.push_back(std::move(stmt));
    } else {
      next();  // "{%"
      const auto is_end = [this](std::string_view name) { return cur().is_name(name); };
      if (std::any_of(ends.begin(), ends.end(), is_end)) {
        if (drop_end) next();
        return body;
      }
      body.push_back(parse_statement());
      expect_block_end();
    }
  }
}

/// The body of a tag: the rest of the opening tag, then statements.
Block Parser::parse_body(std::initializer_list<std::string_view> ends) {
  skip_op(":");
  expect_block_end();
  return parse_block(ends, false);
}

/// A body that is a scope of its own: what it uses must exist even when a condition stands around it.
Block Parser::parse_inner(std::initializer_list<std::string_view> ends, bool drop_end) {
  const size_t before = unknown_.size();
  Block body = parse_body(ends);
  if (unknown_.size() > before) throw TemplateError(unknown_[before]);
  if (drop_end) next();
  return body;
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  if (cur().type != TokenType::kName) error_expected("a tag name");
  auto stmt = std::make_unique<Stmt>();
  stmt->at = cur().at;
  const std::string tag = cur().text;
  if (std::find(kUnavailableTags.begin(), kUnavailableTags.end(), tag) != kUnavailableTags.end()) {
    fail(Code::kUnsupported, "the tag '" + tag + "' is not available in chat templates", cur().at);
  }
  next();
  if (tag == "if") {
    parse_if(*stmt);
  } else if (tag == "for") {
    parse_for(*stmt);
  } else if (tag == "set") {
    parse_set(*stmt);
  } else if (tag == "macro") {
    parse_macro(*stmt);
  } else if (tag == "call") {
    parse_call_block(*stmt);
  } else if (tag == "filter") {
    parse_filter_block(*stmt);
  } else if (tag == "with") {
    parse_with(*stmt);
  } else if (tag == "print") {
    parse_print(*stmt);
  } else if (tag == "generation") {
    parse_generation(*stmt);
  } else if (tag == "break" || tag == "continue") {
    parse_loop_control(*stmt, tag == "break");
  } else {
    fail(Code::kCorrupt, "unknown tag '" + tag + "'", stmt->at);
  }
  return stmt;
}

void Parser::parse_if(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kIf;
  const size_t unknown_before = unknown_.size();
  for (;;) {
    Branch branch;
    TupleMode mode;
    mode.conditional = false;
    branch.condition = parse_tuple(mode);
    branch.body = parse_body({"elif", "else", "endif"});
    stmt.branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      Branch otherwise;
      otherwise.body = parse_body({"endif"});
      stmt.branches.push_back(std::move(otherwise));
    }
    next();  // "endif"
    break;
  }
  unknown_.resize(unknown_before);
}

void Parser::parse_for(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kFor;
  stmt.target = parse_target(false, "in");
  if (stmt.target.kind == Target::Kind::kName && program_.names[stmt.target.name] == "loop") {
    fail(Code::kCorrupt, "can't assign to the special variable 'loop' in a for loop", stmt.at);
  }
  if (!skip_name("in")) error_expected("'in'");
  TupleMode mode;
  mode.conditional = false;
  mode.end_name = "recursive";
  stmt.expr = parse_tuple(mode);
  if (skip_name("if")) stmt.filter = parse_expression();
  stmt.recursive = skip_name("recursive");
  {
    const Saved<bool> loop(in_loop_, true);
    loops_.push_back(&stmt);
    stmt.body = parse_inner({"endfor", "else"}, false);
    loops_.pop_back();
  }
  if (skip_name("else")) stmt.otherwise = parse_inner({"endfor"}, false);
  next();  // "endfor"
}

void Parser::parse_set(Stmt& stmt) {
  stmt.target = parse_target(true, {});
  if (skip_op("=")) {
    stmt.kind = Stmt::Kind::kSet;
    stmt.expr = parse_tuple({});
    return;
  }
  stmt.kind = Stmt::Kind::kSetBlock;
  while (skip_op("|")) stmt.chain.push_back(parse_filter());
  stmt.body = parse_inner({"endset"}, true);
}

void Parser::parse_signature(MacroDef& macro) {
  expect_op("(");
  bool first = true;
  while (!cur().is_op(")")) {
    if (!first) expect_op(",");
    first = false;
    const NameId name = intern(expect_name());
    if (macro.args.size() >= kMaxArguments) {
      fail(Code::kResourceExhausted, "a macro has more arguments than the limit", cur().at);
    }
    if (std::find(macro.args.begin(), macro.args.end(), name) != macro.args.end()) {
      error("the argument '" + program_.names[name] + "' is declared twice");
    }
    macro.args.push_back(name);
    if (skip_op("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      error("non-default argument follows default argument");
    }
  }
  expect_op(")");
}

void Parser::parse_macro_body(MacroDef& macro, std::string_view end) {
  const Saved<bool> loop(in_loop_, false);
  macros_.push_back(&macro);
  macro.body = parse_inner({end}, true);
  macros_.pop_back();
}

void Parser::parse_macro(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kMacro;
  stmt.macro = std::make_unique<MacroDef>();
  stmt.macro->name = expect_name();
  stmt.name = intern(stmt.macro->name);
  parse_signature(*stmt.macro);
  parse_macro_body(*stmt.macro, "endmacro");
}

void Parser::parse_call_block(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kCall;
  stmt.macro = std::make_unique<MacroDef>();
  stmt.macro->name = "caller";
  if (cur().is_op("(")) parse_signature(*stmt.macro);
  stmt.expr = parse_expression();
  if (stmt.expr->kind != Expr::Kind::kPostfix || stmt.expr->steps.back().kind != Postfix::Kind::kCall) {
    fail(Code::kCorrupt, "expected a call", stmt.at);
  }
  parse_macro_body(*stmt.macro, "endcall");
}

void Parser::parse_filter_block(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kFilter;
  stmt.chain.push_back(parse_filter());
  while (skip_op("|")) stmt.chain.push_back(parse_filter());
  stmt.body = parse_inner({"endfilter"}, true);
}

void Parser::parse_with(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kWith;
  while (cur().type != TokenType::kBlockEnd) {
    if (!stmt.targets.empty()) expect_op(",");
    stmt.targets.push_back(parse_target(false, {}));
    expect_op("=");
    stmt.values.push_back(parse_expression());
  }
  stmt.body = parse_inner({"endwith"}, true);
}

void Parser::parse_print(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kPrint;
  std::vector<ExprPtr> values;
  while (cur().type != TokenType::kBlockEnd) {
    if (!values.empty()) expect_op(",");
    values.push_back(parse_expression());
  }
  // Several values print one after the other, which is what concatenation does.
  stmt.expr = make(Expr::Kind::kConcat, stmt.at);
  stmt.expr->children = std::move(values);
}

void Parser::parse_generation(Stmt& stmt) {
  stmt.kind = Stmt::Kind::kScope;
  const Saved<bool> loop(in_loop_, false);
  stmt.body = parse_inner({"endgeneration"}, true);
}

void Parser::parse_loop_control(Stmt& stmt, bool is_break) {
  if (!in_loop_) fail(Code::kCorrupt, "break and continue need a loop around them", stmt.at);
  stmt.kind = is_break ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
}

Target Parser::parse_target(bool with_namespace, std::string_view end_name) {
  const Nest nest(*this);
  const Offset at = cur().at;
  std::vector<Target> parts;
  bool is_tuple = false;
  for (;;) {
    if (!parts.empty()) expect_op(",");
    if (at_tuple_end(end_name)) break;
    parts.push_back(parse_target_part(with_namespace));
    if (!cur().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  if (!is_tuple) error_expected("a name to assign to");
  Target target;
  target.kind = Target::Kind::kTuple;
  target.at = at;
  target.parts = std::move(parts);
  return target;
}

Target Parser::parse_target_part(bool with_namespace) {
  if (skip_op("(")) {
    Target target = parse_target(false, {});
    expect_op(")");
    return target;
  }
  static constexpr std::array kConstants = {"true", "false", "none", "True", "False", "None"};
  Target target;
  target.at = cur().at;
  if (cur().type == TokenType::kName &&
      std::find(kConstants.begin(), kConstants.end(), cur().text) != kConstants.end()) {
    error("can't assign to '" + cur().text + "'");
  }
  target.name = intern(expect_name());
  if (with_namespace && skip_op(".")) {
    target.kind = Target::Kind::kNamespace;
    target.attribute = expect_name();
  }
  return target;
}

}  // namespace isthmus::jinja
