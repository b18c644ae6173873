#include "text/jinja_interp.h"

#include <algorithm>

namespace isthmus::jinja {

// Evaluator stack frames per unit of TemplateLimits::depth: a macro call nests several blocks and
// expressions.
constexpr uint32_t kNestingPerDepth = 4;

/// Sends printed text to a buffer of its own while it lives.
class Interp::Capture {
 public:
  explicit Capture(Interp& in) : in_(in), sink_(in.budget_), old_(in.out_) { in_.out_ = &sink_; }
  ~Capture() { in_.out_ = old_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value take() { return Value::string(sink_.take()); }

 private:
  Interp& in_;
  Sink sink_;
  Sink* old_;
};

Value* Scope::find(NameId name) {
  for (auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(NameId name, Value value) {
  if (Value* found = find(name)) {
    *found = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Interp::Interp(const Program& program, const TemplateLimits& limits, const nlohmann::ordered_json& context,
               int64_t now)
    : program_(program),
      context_(context),
      budget_(limits.steps, limits.output_bytes),
      now_(now),
      max_nesting_(limits.depth * kNestingPerDepth),
      max_calls_(limits.depth),
      outer_(program.names.size()),
      scope_(std::make_shared<Scope>()) {
  for (NameId id = 0; id < program.names.size(); ++id) {
    if (program.names[id] == "loop") loop_name_ = id;
    if (program.names[id] == "varargs") varargs_name_ = id;
    if (program.names[id] == "kwargs") kwargs_name_ = id;
    if (program.names[id] == "caller") caller_name_ = id;
  }
}

std::string Interp::run() {
  Sink sink(budget_);
  out_ = &sink;
  try {
    exec_block(program_.body);
  } catch (TemplateError& error) {
    if (error.at == kNowhere) error.at = at_;
    throw;
  }
  return sink.take();
}

Namespace* Interp::new_namespace() {
  budget_.charge(4);
  return &namespaces_.emplace_back();
}

void Interp::enter_scope() {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  scope_ = std::move(scope);
}

void Interp::leave_scope() { scope_ = scope_->parent; }

Interp::Flow Interp::exec_block(const Block& block) {
  for (const auto& stmt : block) {
    const Flow flow = exec(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interp::Flow Interp::exec(const Stmt& stmt) {
  const Deeper deeper(*this);
  at_ = stmt.at;
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      out_->put(stmt.text);
      break;
    case Stmt::Kind::kPrint: {
      const Value value = eval(*stmt.expr);
      at_ = stmt.at;
      write_str(*out_, value);
      break;
    }
    case Stmt::Kind::kIf:
      return exec_if(stmt);
    case Stmt::Kind::kFor:
      return exec_for(stmt);
    case Stmt::Kind::kSet:
      assign(stmt.target, eval(*stmt.expr));
      break;
    case Stmt::Kind::kSetBlock:
      return exec_set_block(stmt);
    case Stmt::Kind::kMacro:
      exec_macro(stmt);
      break;
    case Stmt::Kind::kCall:
      exec_call_block(stmt);
      break;
    case Stmt::Kind::kFilter:
      return exec_filter_block(stmt);
    case Stmt::Kind::kWith:
      return exec_with(stmt);
    case Stmt::Kind::kScope:
      return exec_scope(stmt);
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interp::Flow Interp::exec_if(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (!branch.condition || truthy(eval(*branch.condition))) return exec_block(branch.body);
  }
  return Flow::kNormal;
}

void Interp::assign(const Target& target, const Value& value) {
  at_ = target.at;
  budget_.charge();
  if (target.kind == Target::Kind::kName) {
    budget_.charge(scope_->variables.size() / kNamesPerStep);
    return scope_->set(target.name, value);
  }
  if (target.kind == Target::Kind::kNamespace) {
    const Value object = lookup(target.name);
    if (!object.is(Kind::kNamespace)) fail_value("cannot assign attribute on non-namespace object");
    budget_.charge(object.ns()->attributes.size() / kNamesPerStep);
    if (Value* found = object.ns()->find(target.attribute)) {
      *found = value;
    } else {
      object.ns()->attributes.emplace_back(target.attribute, value);
    }
    return;
  }
  const std::vector<Value> items = iterate(budget_, value);
  const size_t wanted = target.parts.size();
  if (items.size() != wanted) {
    fail_value((items.size() < wanted ? "not enough values to unpack (expected "
                                      : "too many values to unpack (expected ") +
               std::to_string(wanted) + ", got " + std::to_string(items.size()) + ")");
  }
  for (size_t i = 0; i < wanted; ++i) assign(target.parts[i], items[i]);
}

Interp::Flow Interp::exec_for(const Stmt& stmt) { return run_loop(stmt, eval(*stmt.expr), 0); }

bool Interp::passes_filter(const Stmt& stmt, const Value& item) {
  const std::shared_ptr<Scope> outer = scope_;
  enter_scope();
  assign(stmt.target, item);
  const bool passes = truthy(eval(*stmt.filter));
  scope_ = outer;
  return passes;
}

Interp::Flow Interp::run_loop(const Stmt& stmt, const Value& iterable, uint32_t depth0) {
  at_ = stmt.at;
  budget_.charge(8);
  LoopState& loop = loops_.emplace_back();
  loop.items = iterate(budget_, iterable);
  loop.depth0 = depth0;
  const std::shared_ptr<Scope> outer = scope_;
  if (stmt.recursive) {
    loop.recursive_stmt = &stmt;
    loop.scope = outer;
  }
  // jinja2 filters one item at a time, between runs of the body. Only the name `loop` can look ahead.
  const bool lazy_filter = stmt.filter && !stmt.uses_loop;
  if (stmt.filter && !lazy_filter) {
    std::vector<Value> kept;
    for (const Value& item : loop.items) {
      if (passes_filter(stmt, item)) kept.push_back(item);
    }
    loop.items = std::move(kept);
  }
  bool completed = false;  // some run of the body reached its end: then `else` is skipped
  for (loop.index0 = 0; loop.index0 < loop.items.size(); ++loop.index0) {
    const Flow flow = run_iteration(stmt, loop, lazy_filter, &completed);
    scope_ = outer;
    if (flow == Flow::kBreak) break;
  }
  if (!stmt.uses_loop) loop.items.clear();
  if (completed || stmt.otherwise.empty()) return Flow::kNormal;
  enter_scope();
  const Flow flow = exec_block(stmt.otherwise);
  scope_ = outer;
  return flow;
}

Interp::Flow Interp::run_iteration(const Stmt& stmt, LoopState& loop, bool lazy_filter, bool* completed) {
  budget_.charge();
  const Value& item = loop.items[loop.index0];
  if (lazy_filter && !passes_filter(stmt, item)) return Flow::kNormal;
  enter_scope();
  if (stmt.uses_loop) scope_->set(*loop_name_, Value::of(&loop));
  assign(stmt.target, item);
  const Flow flow = exec_block(stmt.body);
  if (flow == Flow::kNormal) *completed = true;
  return flow;
}

Interp::Flow Interp::capture_block(const Stmt& stmt, Value* value) {
  Flow flow;
  {
    Capture capture(*this);
    enter_scope();
    flow = exec_block(stmt.body);
    leave_scope();
    *value = capture.take();
  }
  if (flow != Flow::kNormal) return flow;
  for (const Postfix& step : stmt.chain) *value = apply(*value, step);
  return Flow::kNormal;
}

Interp::Flow Interp::exec_set_block(const Stmt& stmt) {
  Value value;
  const Flow flow = capture_block(stmt, &value);
  if (flow == Flow::kNormal) assign(stmt.target, value);
  return flow;
}

Interp::Flow Interp::exec_filter_block(const Stmt& stmt) {
  Value value;
  const Flow flow = capture_block(stmt, &value);
  if (flow == Flow::kNormal) write_str(*out_, value);
  return flow;
}

Interp::Flow Interp::exec_with(const Stmt& stmt) {
  std::vector<Value> values;
  for (const ExprPtr& value : stmt.values) values.push_back(eval(*value));
  const std::shared_ptr<Scope> outer = scope_;
  enter_scope();
  for (size_t i = 0; i < values.size(); ++i) assign(stmt.targets[i], values[i]);
  const Flow flow = exec_block(stmt.body);
  scope_ = outer;
  return flow;
}

Interp::Flow Interp::exec_scope(const Stmt& stmt) {
  const std::shared_ptr<Scope> outer = scope_;
  enter_scope();
  const Flow flow = exec_block(stmt.body);
  scope_ = outer;
  return flow;
}

void Interp::exec_macro(const Stmt& stmt) {
  budget_.charge(8);
  auto callable = std::make_shared<Callable>();
  callable->type = Callable::Type::kMacro;
  callable->name = stmt.macro->name;
  callable->macro = &macros_.emplace_back(Macro{stmt.macro.get(), scope_});
  scope_->set(stmt.name, Value::of(std::move(callable)));
}

void Interp::exec_call_block(const Stmt& stmt) {
  budget_.charge(8);
  auto caller = std::make_shared<Callable>();
  caller->type = Callable::Type::kMacro;
  caller->name = "caller";
  caller->macro = &macros_.emplace_back(Macro{stmt.macro.get(), scope_});
  const Postfix& step = stmt.expr->steps.back();
  const Value callee = eval_postfix(*stmt.expr, stmt.expr->steps.size() - 1);
  Args args = eval_args(step.args);
  args.named.emplace_back("caller", Value::of(std::move(caller)));
  at_ = step.at;
  write_str(*out_, call(callee, std::move(args)));
}

Value Interp::call(const Value& callee, Args args) {
  if (callee.is_undefined()) fail_value(callee.why());
  if (callee.is(Kind::kLoop)) return call_loop(*callee.loop(), args);
  if (callee.is(Kind::kHelper) && callee.helper().is_joiner) {
    Helper& joiner = callee.helper();
    return joiner.next++ == 0 ? Value::string("") : joiner.items[0];
  }
  if (!callee.is(Kind::kCallable)) {
    fail_value("'" + std::string(type_name(callee)) + "' object is not callable");
  }
  const Callable& callable = callee.callable();
  switch (callable.type) {
    case Callable::Type::kGlobal:
      return call_global(*this, callable.name, args);
    case Callable::Type::kMethod:
      return call_method(*this, callable.self, callable.name, args);
    case Callable::Type::kMacro:
      break;
  }
  return call_macro(*callable.macro, std::move(args));
}

Value Interp::call_loop(LoopState& loop, const Args& args) {
  if (loop.recursive_stmt == nullptr) {
    fail_value("the loop must have the 'recursive' marker to be called recursively");
  }
  const auto bound = bind(args, "loop", {"iterable"}, 1);
  if (++calls_ > max_calls_) {
    --calls_;
    fail(Code::kResourceExhausted, "recursion of the template is deeper than the limit");
  }
  const std::shared_ptr<Scope> saved = scope_;
  scope_ = loop.scope;
  Value text;
  {
    Capture capture(*this);
    run_loop(*static_cast<const Stmt*>(loop.recursive_stmt), *bound[0], loop.depth0 + 1);
    text = capture.take();
  }
  scope_ = saved;
  --calls_;
  return text;
}

namespace {

/// Takes a named argument out of the list.
std::optional<Value> take_named(Args& args, std::string_view name) {
  for (size_t i = 0; i < args.named.size(); ++i) {
    if (args.named[i].first != name) continue;
    Value value = std::move(args.named[i].second);
    args.named.erase(args.named.begin() + static_cast<std::ptrdiff_t>(i));
    return value;
  }
  return std::nullopt;
}

}  // namespace

// jinja2's rules: positional arguments first, then named ones; what is left over goes to varargs, kwargs and
// caller when the body mentions them and is an error otherwise.
void Interp::bind_macro(const Macro& macro, Args& args) {
  const MacroDef& def = *macro.def;
  const size_t first_default = def.args.size() - def.defaults.size();
  std::vector<std::optional<Value>> given(def.args.size());
  bool explicit_caller = false;
  for (size_t i = 0; i < def.args.size(); ++i) {
    const std::string& name = program_.names[def.args[i]];
    explicit_caller |= name == "caller";
    given[i] = i < args.positional.size() ? std::optional(args.positional[i]) : take_named(args, name);
  }
  if (def.uses_caller && !explicit_caller) {
    std::optional<Value> caller = take_named(args, "caller");
    scope_->set(*caller_name_, caller ? *caller : Value::undefined("no caller defined"));
  }
  if (def.uses_kwargs) {
    auto dict = std::make_shared<DictData>();
    for (auto& [name, value] : args.named) dict->set(budget_, Value::string(name), value);
    scope_->set(*kwargs_name_, Value::dict(std::move(dict)));
  } else if (!args.named.empty()) {
    fail_value("macro '" + def.name + "' takes no keyword argument '" + args.named[0].first + "'");
  }
  if (def.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = def.args.size(); i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    scope_->set(*varargs_name_, Value::list(std::move(rest), Kind::kTuple));
  } else if (args.positional.size() > def.args.size()) {
    fail_value("macro '" + def.name + "' takes not more than " + std::to_string(def.args.size()) +
               " argument(s)");
  }
  for (size_t i = 0; i < def.args.size(); ++i) {
    if (given[i]) {
      scope_->set(def.args[i], *given[i]);
    } else if (i >= first_default) {
      scope_->set(def.args[i], eval(*def.defaults[i - first_default]));
    } else {
      scope_->set(def.args[i],
                  Value::undefined("parameter '" + program_.names[def.args[i]] + "' was not provided"));
    }
  }
}

Value Interp::call_macro(const Macro& macro, Args args) {
  const Deeper deeper(*this);
  if (++calls_ > max_calls_) {
    --calls_;
    fail(Code::kResourceExhausted, "macro calls of the template are nested deeper than the limit");
  }
  const std::shared_ptr<Scope> saved = scope_;
  scope_ = macro.closure;
  enter_scope();
  Value text;
  {
    Capture capture(*this);
    bind_macro(macro, args);
    exec_block(macro.def->body);
    text = capture.take();
  }
  scope_ = saved;
  --calls_;
  return text;
}

}  // namespace isthmus::jinja
