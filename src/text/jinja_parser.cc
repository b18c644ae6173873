#include "text/jinja_parser.h"

#include <algorithm>
#include <array>

namespace isthmus::jinja {
namespace {

// Binding strength of binary operators, loosest first; jinja2 puts "~" between "+" and "*".
enum Level : int { kOr = 1, kAnd, kNot, kCompare, kSum, kConcat, kProduct, kPower };

struct BinaryOp {
  std::string_view text;
  Level level;
  Op op;
};
constexpr std::array kBinaryOps = {
    BinaryOp{"==", kCompare, Op::kEq}, BinaryOp{"!=", kCompare, Op::kNe},
    BinaryOp{"<", kCompare, Op::kLt},  BinaryOp{"<=", kCompare, Op::kLe},
    BinaryOp{">", kCompare, Op::kGt},  BinaryOp{">=", kCompare, Op::kGe},
    BinaryOp{"+", kSum, Op::kAdd},     BinaryOp{"-", kSum, Op::kSub},
    BinaryOp{"~", kConcat, Op::kAdd},  BinaryOp{"*", kProduct, Op::kMul},
    BinaryOp{"/", kProduct, Op::kDiv}, BinaryOp{"//", kProduct, Op::kFloorDiv},
    BinaryOp{"%", kProduct, Op::kMod}, BinaryOp{"**", kPower, Op::kPow},
};

/// The binary operator at `token` (followed by `after`): its level, or 0; `width` is how many tokens it
/// takes.
int binary_level(const Token& token, const Token& after, Op* op, size_t* width) {
  *width = 1;
  if (token.type == TokenType::kOperator) {
    for (const BinaryOp& b : kBinaryOps) {
      if (b.text != token.text) continue;
      *op = b.op;
      return b.level;
    }
  } else if (token.type == TokenType::kName) {
    if (token.text == "or") return kOr;
    if (token.text == "and") return kAnd;
    *op = token.text == "in" ? Op::kIn : Op::kNotIn;
    if (token.text == "in") return kCompare;
    *width = 2;
    if (token.text == "not" && after.is_name("in")) return kCompare;
  }
  return 0;
}

Expr::Kind kind_of_level(int level) {
  switch (level) {
    case kOr:
      return Expr::Kind::kOr;
    case kAnd:
      return Expr::Kind::kAnd;
    case kCompare:
      return Expr::Kind::kCompare;
    case kConcat:
      return Expr::Kind::kConcat;
    default:
      return Expr::Kind::kBinary;
  }
}

}  // namespace

bool Parser::skip_op(std::string_view op) {
  if (!cur().is_op(op)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!cur().is_name(name)) return false;
  next();
  return true;
}

void Parser::error_expected(std::string_view what) const {
  error("expected " + std::string(what) + ", got " + describe(cur()));
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) error_expected("'" + std::string(op) + "'");
}

std::string Parser::expect_name() {
  if (cur().type != TokenType::kName) error_expected("a name");
  return next().text;
}

NameId Parser::intern(const std::string& name) {
  const auto [it, added] = name_ids_.emplace(name, static_cast<NameId>(program_.names.size()));
  if (added) program_.names.push_back(name);
  return it->second;
}

ExprPtr Parser::make(Expr::Kind kind, Offset at) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->at = at;
  return expr;
}

ExprPtr Parser::parse_expression(bool conditional) {
  const Nest nest(*this);
  const size_t unknown_before = unknown_.size();
  ExprPtr first = parse_climb(kOr);
  if (!conditional || !cur().is_name("if")) return first;
  ExprPtr expr = parse_conditional(std::move(first));
  unknown_.resize(unknown_before);
  return expr;
}

ExprPtr Parser::parse_conditional(ExprPtr first) {
  uint32_t wraps = 0;
  while (cur().is_name("if")) {
    ExprPtr expr = make(Expr::Kind::kCond, cur().at);
    expr->children.push_back(std::move(first));
    while (skip_name("if")) {
      expr->children.push_back(parse_climb(kOr));
      if (!skip_name("else")) break;
      expr->children.push_back(parse_climb(kOr));
    }
    if (++wraps + depth_ > max_depth_) {
      fail(Code::kResourceExhausted, "the template is nested deeper than the limit", cur().at);
    }
    first = std::move(expr);
  }
  return first;
}

// Precedence climbing: one stack frame per level really used. Operators of one level form one flat node.
ExprPtr Parser::parse_climb(int min_level) {
  ExprPtr left = cur().is_name("not") && min_level <= kNot ? parse_not() : parse_unary();
  for (;;) {
    Op op = Op::kAdd;
    size_t width = 1;
    const int level = binary_level(cur(), look(), &op, &width);
    if (level == 0 || level < min_level) return left;
    ExprPtr node = make(kind_of_level(level), cur().at);
    node->children.push_back(std::move(left));
    while (binary_level(cur(), look(), &op, &width) == level) {
      node->ops.push_back(op);
      pos_ += width;
      node->children.push_back(parse_climb(level + 1));
    }
    left = std::move(node);
  }
}

ExprPtr Parser::parse_not() {
  ExprPtr node = make(Expr::Kind::kNot, cur().at);
  while (skip_name("not")) ++node->count;
  node->children.push_back(parse_climb(kCompare));
  return node;
}

ExprPtr Parser::parse_unary() {
  const Offset at = cur().at;
  std::vector<Op> signs;
  while (cur().is_op("-") || cur().is_op("+")) signs.push_back(next().text == "-" ? Op::kSub : Op::kAdd);
  ExprPtr value = parse_primary();
  if (!signs.empty()) {
    // A sign binds tighter than a filter: -1|abs is (-1)|abs.
    ExprPtr node = make(Expr::Kind::kSign, at);
    node->ops = std::move(signs);
    node->children.push_back(parse_postfix(std::move(value), false));
    value = std::move(node);
  }
  return parse_postfix(std::move(value), true);
}

ExprPtr Parser::parse_name() {
  const Token& token = next();
  const std::string& name = token.text;
  ExprPtr expr = make(Expr::Kind::kConst, token.at);
  if (name == "true" || name == "True") {
    expr->constant = Value::boolean(true);
  } else if (name == "false" || name == "False") {
    expr->constant = Value::boolean(false);
  } else if (name == "none" || name == "None") {
    expr->constant = Value::none();
  } else {
    expr->kind = Expr::Kind::kName;
    expr->name = intern(name);
    for (MacroDef* macro : macros_) {
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
      macro->uses_caller |= name == "caller";
    }
    if (name == "loop") {
      for (Stmt* loop : loops_) loop->uses_loop = true;
    }
  }
  return expr;
}

ExprPtr Parser::parse_primary() {
  const Token& token = cur();
  switch (token.type) {
    case TokenType::kName:
      return parse_name();
    case TokenType::kString: {
      ExprPtr expr = make(Expr::Kind::kConst, token.at);
      std::string text;
      while (cur().type == TokenType::kString) text += next().text;
      expr->constant = Value::string(std::move(text));
      return expr;
    }
    case TokenType::kInteger:
    case TokenType::kFloat: {
      ExprPtr expr = make(Expr::Kind::kConst, token.at);
      expr->constant =
          token.type == TokenType::kFloat ? Value::real(token.real) : Value::integer(token.integer);
      next();
      return expr;
    }
    default:
      break;
  }
  if (token.is_op("[")) return parse_list();
  if (token.is_op("{")) return parse_dict();
  if (!token.is_op("(")) error("unexpected " + describe(token));
  next();
  TupleMode mode;
  mode.parenthesised = true;
  ExprPtr expr = parse_tuple(mode);
  expect_op(")");
  return expr;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return cur().type == TokenType::kVariableEnd || cur().type == TokenType::kBlockEnd || cur().is_op(")") ||
         (!end_name.empty() && cur().is_name(end_name));
}

ExprPtr Parser::parse_tuple(const TupleMode& mode) {
  const Offset at = cur().at;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_op(",");
    if (at_tuple_end(mode.end_name)) break;
    items.push_back(mode.simplified ? parse_primary() : parse_expression(mode.conditional));
    if (!cur().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!mode.parenthesised) error_expected("an expression");
  }
  ExprPtr tuple = make(Expr::Kind::kTuple, at);
  tuple->children = std::move(items);
  return tuple;
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(Expr::Kind::kList, cur().at);
  expect_op("[");
  while (!cur().is_op("]")) {
    if (!list->children.empty()) expect_op(",");
    if (cur().is_op("]")) break;
    list->children.push_back(parse_expression());
  }
  expect_op("]");
  return list;
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(Expr::Kind::kDict, cur().at);
  expect_op("{");
  while (!cur().is_op("}")) {
    if (!dict->children.empty()) expect_op(",");
    if (cur().is_op("}")) break;
    dict->children.push_back(parse_expression());
    expect_op(":");
    dict->children.push_back(parse_expression());
  }
  expect_op("}");
  return dict;
}

ExprPtr Parser::parse_postfix(ExprPtr base, bool filters) {
  std::vector<Postfix> steps;
  bool filtered = false;  // after the first filter or test only more of them and calls may follow
  for (;;) {
    if (!filtered && (cur().is_op(".") || cur().is_op("["))) {
      steps.push_back(parse_subscript());
    } else if (cur().is_op("(")) {
      steps.push_back(parse_call());
    } else if (filters && cur().is_op("|")) {
      filtered = true;
      next();
      steps.push_back(parse_filter());
    } else if (filters && cur().is_name("is")) {
      filtered = true;
      steps.push_back(parse_test());
    } else {
      break;
    }
  }
  if (steps.empty()) return base;
  ExprPtr expr = make(Expr::Kind::kPostfix, base->at);
  expr->children.push_back(std::move(base));
  expr->steps = std::move(steps);
  return expr;
}

Postfix Parser::parse_subscript() {
  Postfix step;
  step.at = cur().at;
  if (next().is_op(".")) {
    if (cur().type == TokenType::kName) {
      step.name = next().text;
      return step;
    }
    if (cur().type != TokenType::kInteger) error_expected("a name or number");
    step.kind = Postfix::Kind::kItem;
    step.parts.push_back(make(Expr::Kind::kConst, cur().at));
    step.parts[0]->constant = Value::integer(next().integer);
    return step;
  }
  step.kind = Postfix::Kind::kItem;
  std::vector<ExprPtr> items;
  while (!cur().is_op("]")) {
    if (!items.empty()) expect_op(",");
    bool slice = false;
    std::vector<ExprPtr> parts;
    parse_subscript_part(parts, &slice);
    if (slice) {
      if (!items.empty() || !cur().is_op("]")) {
        fail(Code::kUnsupported, "a slice cannot be one of several subscripts", cur().at);
      }
      step.kind = Postfix::Kind::kSlice;
      step.parts = std::move(parts);
      next();
      return step;
    }
    items.push_back(std::move(parts[0]));
  }
  expect_op("]");
  if (items.size() == 1) {
    step.parts.push_back(std::move(items[0]));
  } else {
    step.parts.push_back(make(Expr::Kind::kTuple, step.at));
    step.parts[0]->children = std::move(items);
  }
  return step;
}

/// An index, or the start, stop and step of a slice (null where left out).
void Parser::parse_subscript_part(std::vector<ExprPtr>& parts, bool* slice) {
  const auto absent = [this] { return cur().is_op(":") || cur().is_op("]") || cur().is_op(","); };
  parts.push_back(cur().is_op(":") ? nullptr : parse_expression());
  *slice = skip_op(":");
  if (!*slice) return;
  parts.push_back(absent() ? nullptr : parse_expression());
  const bool has_step = skip_op(":");
  parts.push_back(!has_step || absent() ? nullptr : parse_expression());
}

Postfix Parser::parse_call() {
  Postfix step;
  step.kind = Postfix::Kind::kCall;
  step.at = cur().at;
  parse_call_args(step.args);
  return step;
}

void Parser::parse_call_args(CallArgs& args) {
  const Offset at = cur().at;
  const auto ensure = [at](bool ok) {
    if (!ok) fail(Code::kCorrupt, "invalid syntax for function call expression", at);
  };
  expect_op("(");
  bool first = true;
  while (!cur().is_op(")")) {
    if (!first) {
      expect_op(",");
      if (cur().is_op(")")) break;
    }
    first = false;
    if (skip_op("*")) {
      ensure(!args.star && !args.double_star);
      args.star = parse_expression();
    } else if (skip_op("**")) {
      ensure(!args.double_star);
      args.double_star = parse_expression();
    } else if (cur().type == TokenType::kName && look().is_op("=")) {
      ensure(!args.double_star);
      std::string name = next().text;
      next();
      if (args.named.size() >= kMaxArguments) {
        fail(Code::kResourceExhausted, "a call has more named arguments than the limit", at);
      }
      for (const auto& [other, value] : args.named) {
        if (other == name) error("the argument '" + name + "' is given twice");
      }
      ExprPtr value = parse_expression();
      args.named.emplace_back(std::move(name), std::move(value));
    } else {
      ensure(!args.star && !args.double_star && args.named.empty());
      args.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name.append(".").append(expect_name());
  return name;
}

Postfix Parser::parse_filter() {
  Postfix step;
  step.kind = Postfix::Kind::kFilter;
  step.at = cur().at;
  step.name = parse_dotted_name();
  if (!is_known_filter(step.name)) {
    unknown_.push_back({Code::kUnsupported, "no filter named '" + step.name + "'", step.at});
  }
  if (cur().is_op("(")) parse_call_args(step.args);
  return step;
}

Postfix Parser::parse_test() {
  next();  // "is"
  Postfix step;
  step.kind = Postfix::Kind::kTest;
  step.negated = skip_name("not");
  step.at = cur().at;
  step.name = parse_dotted_name();
  if (!is_known_test(step.name)) {
    unknown_.push_back({Code::kUnsupported, "no test named '" + step.name + "'", step.at});
  }
  if (cur().is_op("(")) {
    parse_call_args(step.args);
    return step;
  }
  const bool starts_value = cur().type == TokenType::kName || cur().type == TokenType::kString ||
                            cur().type == TokenType::kInteger || cur().type == TokenType::kFloat ||
                            cur().is_op("[") || cur().is_op("{");
  if (!starts_value || cur().is_name("else") || cur().is_name("or") || cur().is_name("and")) return step;
  if (cur().is_name("is")) error("tests cannot be chained with 'is'");
  step.args.positional.push_back(parse_postfix(parse_primary(), false));
  return step;
}

Program parse_program(std::string_view source, uint32_t depth) {
  Program program;
  program.source = normalise_source(source);
  Parser parser(program, depth);
  program.body = parser.parse_template();
  return program;
}

}  // namespace isthmus::jinja
