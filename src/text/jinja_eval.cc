// Expressions: the other half of the evaluator.
#include <algorithm>

#include "text/jinja_interp.h"

namespace isthmus::jinja {

Value Interp::eval(const Expr& expr) {
  if (expr.kind == Expr::Kind::kConst) {
    budget_.charge();
    return expr.constant;
  }
  const Deeper deeper(*this);
  at_ = expr.at;
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return expr.constant;
    case Expr::Kind::kName:
      return lookup(expr.name);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return eval_items(expr);
    case Expr::Kind::kDict:
      return eval_dict(expr);
    case Expr::Kind::kBinary:
      return eval_binary(expr);
    case Expr::Kind::kCompare:
      return eval_compare(expr);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return eval_logic(expr);
    case Expr::Kind::kNot:
      return Value::boolean(truthy(eval(*expr.children[0])) != (expr.count % 2 == 1));
    case Expr::Kind::kSign:
      return eval_sign(expr);
    case Expr::Kind::kConcat:
      return eval_concat(expr);
    case Expr::Kind::kCond:
      return eval_cond(expr);
    case Expr::Kind::kPostfix:
      return eval_postfix(expr, expr.steps.size());
  }
  fail(Code::kInternal, "unknown kind of expression");
}

Value Interp::lookup(NameId name) {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    budget_.charge(scope->variables.size() / kNamesPerStep);
    if (const Value* value = scope->find(name)) return *value;
  }
  std::optional<Value>& outer = outer_[name];
  if (outer) return *outer;
  const std::string& text = program_.names[name];
  const auto it = context_.find(text);
  if (it != context_.end()) {
    outer = from_json(*it, budget_.max_bytes());
  } else if (is_global(text)) {
    auto callable = std::make_shared<Callable>();
    callable->name = text;
    outer = Value::of(std::move(callable));
  } else {
    outer = Value::undefined(cat("'", text, "' is undefined"));
  }
  return *outer;
}

Value Interp::eval_items(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) items.push_back(eval(*child));
  at_ = expr.at;
  return Value::list(std::move(items), expr.kind == Expr::Kind::kList ? Kind::kList : Kind::kTuple);
}

Value Interp::eval_dict(const Expr& expr) {
  auto dict = std::make_shared<DictData>();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = eval(*expr.children[i]);
    Value value = eval(*expr.children[i + 1]);
    at_ = expr.children[i]->at;
    dict->set(budget_, std::move(key), std::move(value));
  }
  return Value::dict(std::move(dict));
}

Value Interp::eval_binary(const Expr& expr) {
  Value left = eval(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value right = eval(*expr.children[i + 1]);
    at_ = expr.at;
    left = binary(*this, expr.ops[i], left, right);
  }
  return left;
}

Value Interp::eval_compare(const Expr& expr) {
  Value left = eval(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.children[i + 1]);
    at_ = expr.at;
    if (!compare(*this, expr.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interp::eval_logic(const Expr& expr) {
  const bool stop = expr.kind == Expr::Kind::kOr;
  Value value = eval(*expr.children[0]);
  for (size_t i = 1; i < expr.children.size() && truthy(value) != stop; ++i) value = eval(*expr.children[i]);
  return value;
}

Value Interp::eval_sign(const Expr& expr) {
  Value value = eval(*expr.children[0]);
  at_ = expr.at;
  for (auto op = expr.ops.rbegin(); op != expr.ops.rend(); ++op) {
    if (value.is_undefined()) fail_value(value.why());
    if (*op == Op::kSub) {
      value = negate(value);
    } else if (!value.is_number()) {
      fail_value("bad operand type for unary +: '" + std::string(type_name(value)) + "'");
    } else if (value.is(Kind::kBool)) {
      value = Value::integer(value.as_int());
    }
  }
  return value;
}

Value Interp::eval_concat(const Expr& expr) {
  Sink sink(budget_);
  for (const ExprPtr& child : expr.children) {
    const Value value = eval(*child);
    at_ = expr.at;
    write_str(sink, value);
  }
  return Value::string(sink.take());
}

Value Interp::eval_cond(const Expr& expr) {
  size_t i = 0;
  for (; i + 1 < expr.children.size(); i += 2) {
    if (truthy(eval(*expr.children[i + 1]))) return eval(*expr.children[i]);
  }
  if (i < expr.children.size()) return eval(*expr.children[i]);
  return Value::undefined("the inline if-expression was false and has no else part");
}

Value Interp::eval_postfix(const Expr& expr, size_t steps) {
  Value value = eval(*expr.children[0]);
  for (size_t i = 0; i < steps; ++i) value = apply(value, expr.steps[i]);
  return value;
}

Value Interp::apply(const Value& value, const Postfix& step) {
  budget_.charge();
  switch (step.kind) {
    case Postfix::Kind::kAttribute:
      at_ = step.at;
      return get_attribute(budget_, value, step.name);
    case Postfix::Kind::kItem: {
      const Value key = eval(*step.parts[0]);
      at_ = step.at;
      return get_item(budget_, value, key);
    }
    case Postfix::Kind::kSlice:
      return apply_slice(value, step);
    case Postfix::Kind::kCall: {
      Args args = eval_args(step.args);
      at_ = step.at;
      return call(value, std::move(args));
    }
    case Postfix::Kind::kFilter: {
      const Args args = eval_args(step.args);
      at_ = step.at;
      return call_filter(*this, step.name, value, args);
    }
    case Postfix::Kind::kTest: {
      const Args args = eval_args(step.args);
      at_ = step.at;
      return Value::boolean(call_test(*this, step.name, value, args) != step.negated);
    }
  }
  fail(Code::kInternal, "unknown kind of postfix");
}

Value Interp::apply_slice(const Value& value, const Postfix& step) {
  Value parts[3] = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 3; ++i) {
    if (step.parts[i]) parts[i] = eval(*step.parts[i]);
  }
  at_ = step.at;
  return get_slice(budget_, value, parts[0], parts[1], parts[2]);
}

Args Interp::eval_args(const CallArgs& call) {
  Args args;
  for (const ExprPtr& arg : call.positional) args.positional.push_back(eval(*arg));
  for (const auto& [name, arg] : call.named) args.named.emplace_back(name, eval(*arg));
  if (call.star) {
    for (Value& item : iterate(budget_, eval(*call.star))) args.positional.push_back(std::move(item));
  }
  if (call.double_star) {
    const Value dict = eval(*call.double_star);
    if (!dict.is(Kind::kDict)) fail_value("argument after ** must be a mapping");
    for (const auto& [key, value] : dict.dict_data().entries) {
      budget_.charge(1 + args.named.size() / kNamesPerStep);
      if (!key.is_string()) fail_value("keywords must be strings");
      const std::string& name = key.str();
      const bool given = std::any_of(args.named.begin(), args.named.end(),
                                     [&name](const auto& named) { return named.first == name; });
      if (given) fail_value("got multiple values for keyword argument '" + name + "'");
      args.named.emplace_back(name, value);
    }
  }
  if (args.named.size() > kMaxArguments) {
    fail(Code::kResourceExhausted, "a call has more named arguments than the limit");
  }
  return args;
}

std::vector<const Value*> bind(const Args& args, std::string_view what,
                               std::initializer_list<std::string_view> names, size_t required) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (args.positional.size() > names.size()) {
    fail_value(std::string(what) + "() takes at most " + std::to_string(names.size()) + " arguments, got " +
               std::to_string(args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      fail_value(std::string(what) + "() got an unexpected keyword argument '" + name + "'");
    }
    const auto i = static_cast<size_t>(it - names.begin());
    if (bound[i] != nullptr) {
      fail_value(std::string(what) + "() got multiple values for argument '" + name + "'");
    }
    bound[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      fail_value(std::string(what) + "() misses the argument '" + std::string(names.begin()[i]) + "'");
    }
  }
  return bound;
}

}  // namespace isthmus::jinja
