// The tests of the template language: what may follow "is".
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja_interp.h"
#include "text/jinja_parser.h"
#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

using One = bool (*)(Interp& in, const Value& value);

bool remainder_is(Interp& in, const Value& value, int64_t divisor, int64_t rest) {
  const Value got = binary(in, Op::kMod, value, Value::integer(divisor));
  return equal(in.budget(), got, Value::integer(rest));
}

/// str.islower / str.isupper: no cased character of the other kind, and at least one of this kind.
bool has_case(const std::string& text, bool upper_case) {
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_char(text, i);
    if (upper_case ? is_lower(c) : is_upper(c)) return false;
    found |= upper_case ? is_upper(c) : is_lower(c);
  }
  return found;
}

bool t_odd(Interp& in, const Value& v) { return remainder_is(in, v, 2, 1); }
bool t_even(Interp& in, const Value& v) { return remainder_is(in, v, 2, 0); }
bool t_defined(Interp&, const Value& v) { return !v.is_undefined(); }
bool t_undefined(Interp&, const Value& v) { return v.is_undefined(); }
bool t_none(Interp&, const Value& v) { return v.is(Kind::kNone); }
bool t_boolean(Interp&, const Value& v) { return v.is(Kind::kBool); }
bool t_false(Interp&, const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool t_true(Interp&, const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool t_integer(Interp&, const Value& v) { return v.is(Kind::kInt); }
bool t_float(Interp&, const Value& v) { return v.is(Kind::kFloat); }
bool t_lower(Interp& in, const Value& v) { return has_case(to_str(in.budget(), v), false); }
bool t_upper(Interp& in, const Value& v) { return has_case(to_str(in.budget(), v), true); }
bool t_string(Interp&, const Value& v) { return v.is_string(); }
bool t_mapping(Interp&, const Value& v) { return v.is(Kind::kDict); }
bool t_number(Interp&, const Value& v) { return v.is_number(); }
bool t_iterable(Interp&, const Value& v) { return is_iterable(v); }
bool t_callable(Interp&, const Value& v) {
  return v.is(Kind::kCallable) || v.is(Kind::kLoop) || v.is_undefined() ||
         (v.is(Kind::kHelper) && v.helper().is_joiner);
}
bool t_escaped(Interp&, const Value& v) { return v.is_markup(); }
bool t_sequence(Interp&, const Value& v) {
  return v.is_undefined() || v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kDict) ||
         v.is(Kind::kRange);
}
bool t_filter(Interp&, const Value& v) { return v.is_string() && is_known_filter(v.str()); }
bool t_test(Interp&, const Value& v) { return v.is_string() && is_known_test(v.str()); }

struct OneTest {
  std::string_view name;
  One run;
};
constexpr std::array kOne = {
    OneTest{"odd", t_odd},           OneTest{"even", t_even},
    OneTest{"defined", t_defined},   OneTest{"undefined", t_undefined},
    OneTest{"none", t_none},         OneTest{"boolean", t_boolean},
    OneTest{"false", t_false},       OneTest{"true", t_true},
    OneTest{"integer", t_integer},   OneTest{"float", t_float},
    OneTest{"lower", t_lower},       OneTest{"upper", t_upper},
    OneTest{"string", t_string},     OneTest{"mapping", t_mapping},
    OneTest{"number", t_number},     OneTest{"sequence", t_sequence},
    OneTest{"iterable", t_iterable}, OneTest{"callable", t_callable},
    OneTest{"escaped", t_escaped},   OneTest{"filter", t_filter},
    OneTest{"test", t_test},
};

struct TwoTest {
  std::string_view name;
  Op op;
};
constexpr std::array kTwo = {
    TwoTest{"==", Op::kEq},       TwoTest{"eq", Op::kEq},          TwoTest{"equalto", Op::kEq},
    TwoTest{"!=", Op::kNe},       TwoTest{"ne", Op::kNe},          TwoTest{">", Op::kGt},
    TwoTest{"gt", Op::kGt},       TwoTest{"greaterthan", Op::kGt}, TwoTest{">=", Op::kGe},
    TwoTest{"ge", Op::kGe},       TwoTest{"<", Op::kLt},           TwoTest{"lt", Op::kLt},
    TwoTest{"lessthan", Op::kLt}, TwoTest{"<=", Op::kLe},          TwoTest{"le", Op::kLe},
    TwoTest{"in", Op::kIn},
};

}  // namespace

bool is_known_test(std::string_view name) {
  const auto named = [name](const auto& test) { return test.name == name; };
  return name == "divisibleby" || name == "sameas" || std::any_of(kOne.begin(), kOne.end(), named) ||
         std::any_of(kTwo.begin(), kTwo.end(), named);
}

bool call_test(Interp& in, const std::string& name, const Value& input, const Args& args) {
  in.budget().charge();
  for (const OneTest& test : kOne) {
    if (test.name != name) continue;
    bind(args, name, {});
    return test.run(in, input);
  }
  for (const TwoTest& test : kTwo) {
    if (test.name != name) continue;
    const auto bound = bind(args, name, {name == "in" ? "seq" : "other"}, 1);
    return compare(in, test.op, input, *bound[0]);
  }
  if (name == "divisibleby") {
    const auto bound = bind(args, name, {"num"}, 1);
    return equal(in.budget(), binary(in, Op::kMod, input, *bound[0]), Value::integer(0));
  }
  if (name == "sameas") {
    const auto bound = bind(args, name, {"other"}, 1);
    return same(input, *bound[0]);
  }
  fail(Code::kUnsupported, "no test named '" + name + "'");
}

}  // namespace isthmus::jinja
