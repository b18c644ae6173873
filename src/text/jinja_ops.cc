// Arithmetic and comparison operators with Python's rules. Integers have 64 bits; a result beyond them is an
// error.
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "text/jinja_interp.h"
#include "text/jinja_strings.h"

namespace isthmus::jinja {

namespace {

std::string_view op_text(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    case Op::kPow:
      return "**";
    case Op::kLt:
      return "<";
    case Op::kLe:
      return "<=";
    case Op::kGt:
      return ">";
    case Op::kGe:
      return ">=";
    default:
      return "?";
  }
}

[[noreturn]] void overflow() { fail(Code::kUnsupported, "integer result beyond 64 bits"); }

Value checked(const std::optional<int64_t>& result) {
  if (!result) overflow();
  return Value::integer(*result);
}

Value int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail_value("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 1 || exponent == 0) return Value::integer(1);
  if (base == 0) return Value::integer(0);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  std::optional<int64_t> result = 1;
  for (int64_t i = 0; i < exponent && result; ++i) result = checked_mul(*result, base);  // at most 63 turns
  return checked(result);
}

Value int_op(Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case Op::kAdd:
      return checked(checked_add(a, b));
    case Op::kSub:
      if (__builtin_sub_overflow(a, b, &out)) overflow();
      return Value::integer(out);
    case Op::kMul:
      return checked(checked_mul(a, b));
    case Op::kDiv:
      if (b == 0) fail_value("division by zero");
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Op::kFloorDiv:
    case Op::kMod: {
      if (b == 0) fail_value("integer division or modulo by zero");
      if (b == -1) return op == Op::kMod ? Value::integer(0) : negate(Value::integer(a));
      const int64_t rest = a % b;
      const bool adjust = rest != 0 && (rest < 0) != (b < 0);  // Python rounds towards minus infinity
      if (op == Op::kMod) return Value::integer(adjust ? rest + b : rest);
      return Value::integer(adjust ? a / b - 1 : a / b);
    }
    default:
      return int_power(a, b);
  }
}

double float_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0.0) {
    if ((b < 0) != (rest < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  return rest;
}

double float_floor_div(double a, double b) {
  const double rest = float_mod(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

Value float_power(double a, double b) {
  if (a == 0.0 && b < 0.0) fail_value("0.0 cannot be raised to a negative power");
  if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    fail(Code::kUnsupported, "a negative number to a fractional power is complex");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    fail_value("numerical result out of range");
  }
  return Value::real(result);
}

Value float_op(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::real(a + b);
    case Op::kSub:
      return Value::real(a - b);
    case Op::kMul:
      return Value::real(a * b);
    case Op::kDiv:
      if (b == 0.0) fail_value("float division by zero");
      return Value::real(a / b);
    case Op::kFloorDiv:
      if (b == 0.0) fail_value("float floor division by zero");
      return Value::real(float_floor_div(a, b));
    case Op::kMod:
      if (b == 0.0) fail_value("float modulo");
      return Value::real(float_mod(a, b));
    default:
      return float_power(a, b);
  }
}

Value add_strings(Budget& budget, const Value& a, const Value& b) {
  budget.charge_bytes(a.str().size() + b.str().size());
  const bool markup = a.is_markup() || b.is_markup();
  if (!markup) return Value::string(a.str() + b.str());
  const auto safe = [](const Value& v) { return v.is_markup() ? v.str() : escape_html(v.str()); };
  return Value::string(safe(a) + safe(b), true);
}

Value add_lists(Budget& budget, const Value& a, const Value& b) {
  std::vector<Value> items;
  budget.charge(a.list_data().items.size() + b.list_data().items.size());
  items.reserve(a.list_data().items.size() + b.list_data().items.size());
  for (const Value* v : {&a, &b}) {
    items.insert(items.end(), v->list_data().items.begin(), v->list_data().items.end());
  }
  return Value::list(std::move(items), a.kind());
}

bool is_repeatable(const Value& v) { return v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple); }

Value repeat(Budget& budget, const Value& value, int64_t count) {
  const auto times = static_cast<uint64_t>(count < 0 ? 0 : count);
  const uint64_t size = value.is_string() ? value.str().size() : value.list_data().items.size();
  const std::optional<uint64_t> total = checked_mul(size, times);
  if (!total || *total > std::numeric_limits<uint32_t>::max()) {
    fail(Code::kResourceExhausted, "a repeated value is longer than the limit");
  }
  if (value.is_string()) {
    budget.charge_bytes(*total);
    std::string out;
    out.reserve(*total);
    for (uint64_t i = 0; i < times && size > 0; ++i) out += value.str();
    return Value::string(std::move(out), value.is_markup());
  }
  budget.charge(*total);
  std::vector<Value> items;
  items.reserve(*total);
  for (uint64_t i = 0; i < times && size > 0; ++i) {
    items.insert(items.end(), value.list_data().items.begin(), value.list_data().items.end());
  }
  return Value::list(std::move(items), value.kind());
}

[[noreturn]] void bad_operands(Op op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_value(a.why());
  if (b.is_undefined()) fail_value(b.why());
  if (op == Op::kAdd && (a.is_string() || a.is(Kind::kList) || a.is(Kind::kTuple))) {
    fail_value("can only concatenate " + std::string(type_name(a)) + " (not \"" + std::string(type_name(b)) +
               "\") to " + std::string(type_name(a)));
  }
  fail_value("unsupported operand type(s) for " + std::string(op_text(op)) + ": '" +
             std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

}  // namespace

Value negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  if (!value.is_integral()) {
    fail_value("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
  }
  if (value.as_int() == std::numeric_limits<int64_t>::min()) overflow();
  return Value::integer(-value.as_int());
}

int64_t to_index(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_value(value.why());
  if (!value.is_integral()) {
    fail_value(std::string(what) + " must be an integer, not " + std::string(type_name(value)));
  }
  return value.as_int();
}

Value binary(Interp& in, Op op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return int_op(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_op(op, a.as_double(), b.as_double());
  if (op == Op::kAdd) {
    if (a.is_string() && b.is_string()) return add_strings(in.budget(), a, b);
    const bool lists = a.is(Kind::kList) || a.is(Kind::kTuple);
    if (lists && a.kind() == b.kind()) return add_lists(in.budget(), a, b);
  } else if (op == Op::kMul) {
    if (is_repeatable(a) && b.is_integral()) return repeat(in.budget(), a, b.as_int());
    if (a.is_integral() && is_repeatable(b)) return repeat(in.budget(), b, a.as_int());
  } else if (op == Op::kMod && a.is_string()) {
    return Value::string(format_percent(in, a.str(), b), a.is_markup());
  }
  bad_operands(op, a, b);
}

bool compare(Interp& in, Op op, const Value& a, const Value& b) {
  Budget& budget = in.budget();
  switch (op) {
    case Op::kEq:
      return equal(budget, a, b);
    case Op::kNe:
      return !equal(budget, a, b);
    case Op::kLt:
      return less(budget, a, b, "<");
    case Op::kGt:
      return less(budget, b, a, ">");
    case Op::kIn:
      return contains(budget, b, a);
    case Op::kNotIn:
      return !contains(budget, b, a);
    default:
      break;
  }
  // "<=" is not "not >" for NaN, nor for lists that hold one, so equality is asked first.
  const bool below = op == Op::kLe;
  if (a.is_number() && b.is_number() && equal(budget, a, b)) return true;
  const bool strictly = less(budget, below ? a : b, below ? b : a, op_text(op));
  return strictly || equal(budget, a, b);
}

}  // namespace isthmus::jinja
