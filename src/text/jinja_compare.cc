// Equality, order, membership, iteration and element access of values, with Python's rules.
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace isthmus::jinja {
namespace {

int64_t range_at(const RangeData& range, int64_t i) { return range.start + range.step * i; }

bool equal_items(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i]) && !equal(budget, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Budget& budget, const DictData& a, const DictData& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(budget, key);
    if (other == nullptr || (!same(value, *other) && !equal(budget, value, *other))) return false;
  }
  return true;
}

bool equal_ranges(const RangeData& a, const RangeData& b) {
  if (a.size != b.size) return false;
  if (a.size == 0) return true;
  return a.start == b.start && (a.size == 1 || a.step == b.step);
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  // 64 bits of mantissa hold every int64 and every double exactly.
  const auto wide = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.as_int()) : static_cast<long double>(v.as_double());
  };
  return wide(a) == wide(b);
}

bool less_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
  const auto wide = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.as_int()) : static_cast<long double>(v.as_double());
  };
  return wide(a) < wide(b);
}

std::string object_name(const Value& value) {
  if (value.is(Kind::kNone)) return "None";
  return cat("'", type_name(value), " object'");
}

constexpr std::array kStringMethods = {
    "capitalize", "casefold",     "center",     "count",       "endswith",   "expandtabs",   "find",
    "format",     "format_map",   "index",      "isalnum",     "isalpha",    "isascii",      "isdecimal",
    "isdigit",    "islower",      "isnumeric",  "isprintable", "isspace",    "istitle",      "isupper",
    "join",       "ljust",        "lower",      "lstrip",      "partition",  "removeprefix", "removesuffix",
    "replace",    "rfind",        "rindex",     "rjust",       "rpartition", "rsplit",       "rstrip",
    "split",      "splitlines",   "startswith", "strip",       "swapcase",   "title",        "upper",
    "zfill",      "isidentifier", "encode",     "translate"};
constexpr std::array kDictMethods = {"copy", "get", "items", "keys", "values", "fromkeys"};
constexpr std::array kDictMutators = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array kListMethods = {"copy", "count", "index"};
constexpr std::array kListMutators = {"append", "clear",  "extend",  "insert",
                                      "pop",    "remove", "reverse", "sort"};
constexpr std::array kTupleMethods = {"count", "index"};
constexpr std::array kFloatMethods = {"is_integer"};
constexpr std::array kLoopMethods = {"cycle", "changed"};
constexpr std::array kCyclerMethods = {"next", "reset"};

template <class Array>
bool has(const Array& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value refused(const Value& value, const std::string& name) {
  return Value::undefined("access to attribute '" + name + "' of " + object_name(value) +
                          " is not allowed in a template");
}

Value missing(const Value& value, const std::string& name) {
  return Value::undefined(object_name(value) + " has no attribute '" + name + "'");
}

Value loop_attribute(const LoopState& loop, std::string_view name, bool* found) {
  const auto size = static_cast<int64_t>(loop.items.size());
  const auto i = static_cast<int64_t>(loop.index0);
  *found = true;
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "revindex") return Value::integer(size - i);
  if (name == "revindex0") return Value::integer(size - i - 1);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "last") return Value::boolean(i + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(static_cast<int64_t>(loop.depth0) + 1);
  if (name == "depth0") return Value::integer(static_cast<int64_t>(loop.depth0));
  if (name == "previtem") {
    return i > 0 ? loop.items[loop.index0 - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return i + 1 < size ? loop.items[loop.index0 + 1] : Value::undefined("there is no next item");
  }
  *found = false;
  return Value();
}

/// Attributes that are not methods; found is false when there is none.
Value data_attribute(const Value& value, const std::string& name, bool* found) {
  *found = true;
  if (value.is(Kind::kNamespace)) {
    if (const Value* v = value.ns()->find(name)) return *v;
  } else if (value.is(Kind::kLoop)) {
    return loop_attribute(*value.loop(), name, found);
  } else if (value.is(Kind::kTuple) && value.list_data().is_group) {
    if (name == "grouper") return value.list_data().items[0];
    if (name == "list") return value.list_data().items[1];
  } else if (value.is(Kind::kHelper) && !value.helper().is_joiner && name == "current") {
    return value.helper().items[value.helper().next];
  } else if (value.is(Kind::kRange)) {
    const RangeData& range = value.range_data();
    if (name == "start") return Value::integer(range.start);
    if (name == "stop") return Value::integer(range.stop);
    if (name == "step") return Value::integer(range.step);
  } else if (value.is(Kind::kCallable) && value.callable().macro != nullptr && name == "name") {
    return Value::string(value.callable().name);
  }
  *found = false;
  return Value();
}

Value method_of(const Value& value, const std::string& name) {
  auto callable = std::make_shared<Callable>();
  callable->type = Callable::Type::kMethod;
  callable->name = name;
  callable->self = value;
  return Value::of(std::move(callable));
}

/// What Python's getattr() gives; found is false when it raises AttributeError.
Value python_getattr(const Value& value, const std::string& name, bool* found) {
  *found = true;
  if (name.starts_with("__") && name.ends_with("__")) return refused(value, name);
  Value v = data_attribute(value, name, found);
  if (*found) return v;
  bool mutates = false;
  *found = has_method(value, name, &mutates);
  if (!*found) return Value();
  return mutates ? refused(value, name) : method_of(value, name);
}

/// What Python's value[key] gives; found is false when it raises TypeError or LookupError.
Value python_getitem(Budget& budget, const Value& value, const Value& key, bool* found) {
  *found = true;
  if (value.is(Kind::kDict)) {
    const bool hashable = !key.is(Kind::kList) && !key.is(Kind::kDict);
    const Value* v = hashable ? value.dict_data().find(budget, key) : nullptr;
    if (v != nullptr) return *v;
  } else if (key.is_integral()) {
    int64_t i = key.as_int();
    const bool indexable =
        value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kRange);
    const int64_t size = indexable ? length(value) : 0;
    if (i < 0) i += size;
    if (i >= 0 && i < size) {
      const auto at = static_cast<size_t>(i);
      if (value.is(Kind::kRange)) return Value::integer(range_at(value.range_data(), i));
      if (!value.is_string()) return value.list_data().items[at];
      const StringData& s = value.string_data();
      if (s.chars == s.bytes.size()) return Value::string(std::string(1, s.bytes[at]));
      budget.charge(at / kBytesPerStep);
      const size_t begin = byte_of_char(s.bytes, at);
      return Value::string(s.bytes.substr(begin, char_bytes(s.bytes, begin)));
    }
  }
  *found = false;
  return Value();
}

struct SliceRange {
  int64_t start, step, size, stop;
};

int64_t slice_index(const Value& v, int64_t absent, int64_t low, int64_t high, int64_t size) {
  if (v.is(Kind::kNone)) return absent;
  if (!v.is_integral()) fail_value("slice indices must be integers or None");
  int64_t i = v.as_int();
  if (i < 0) i = i < -size ? low : i + size;
  return std::clamp(i, low, high);
}

SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step_value, int64_t size) {
  if (!step_value.is(Kind::kNone) && !step_value.is_integral()) {
    fail_value("slice indices must be integers or None");
  }
  const int64_t step = step_value.is(Kind::kNone) ? 1 : step_value.as_int();
  if (step == 0) fail_value("slice step cannot be zero");
  const int64_t low = step < 0 ? -1 : 0;
  const int64_t high = step < 0 ? size - 1 : size;
  const int64_t first = slice_index(start, step < 0 ? high : low, low, high, size);
  const int64_t last = slice_index(stop, step < 0 ? low : high, low, high, size);
  const int64_t span = step < 0 ? first - last : last - first;
  // The step's magnitude as unsigned: INT64_MIN has no positive counterpart.
  const uint64_t stride = step < 0 ? ~static_cast<uint64_t>(step) + 1 : static_cast<uint64_t>(step);
  const int64_t count = span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1;
  return {first, count <= 1 ? 1 : step, count, last};
}

Value slice_string(const Value& value, const SliceRange& s) {
  const StringData& data = value.string_data();
  const auto start = static_cast<size_t>(s.start < 0 ? 0 : s.start);
  const auto count = static_cast<size_t>(s.size);
  if (count == 0) return Value::string("", data.markup);
  if (s.step == 1) {
    const size_t begin = data.chars == data.bytes.size() ? start : byte_of_char(data.bytes, start);
    const std::string_view rest = std::string_view(data.bytes).substr(begin);
    const size_t bytes = data.chars == data.bytes.size() ? count : byte_of_char(rest, count);
    return Value::string(std::string(rest.substr(0, bytes)), data.markup);
  }
  std::vector<std::string_view> chars;
  for (size_t i = 0; i < data.bytes.size();) {
    const size_t n = char_bytes(data.bytes, i);
    chars.push_back(std::string_view(data.bytes).substr(i, n));
    i += n;
  }
  std::string out;
  for (int64_t i = 0; i < s.size; ++i) out += chars[static_cast<size_t>(s.start + i * s.step)];
  return Value::string(std::move(out), data.markup);
}

}  // namespace

bool same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_integral()) return a.as_int() == b.as_int();
  if (a.is(Kind::kFloat)) return a.as_double() == b.as_double();
  if (a.is(Kind::kNone)) return true;
  // Equal short strings are one object in Python; longer ones made apart are not, which no template relies
  // on.
  if (a.is_string()) return a.identity() == b.identity() || a.str() == b.str();
  return a.identity() == b.identity();
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.charge();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      budget.charge(a.str().size() / kBytesPerStep);
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kKeys:
    case Kind::kItems:
      return equal_items(budget, a.list_data().items, b.list_data().items);
    case Kind::kDict:
      return equal_dicts(budget, a.dict_data(), b.dict_data());
    case Kind::kRange:
      return equal_ranges(a.range_data(), b.range_data());
    default:
      return a.identity() == b.identity();
  }
}

bool less(Budget& budget, const Value& a, const Value& b, std::string_view op) {
  budget.charge();
  if (a.is_number() && b.is_number()) return less_numbers(a, b);
  if (a.is_undefined()) fail_value(a.why());
  if (b.is_undefined()) fail_value(b.why());
  if (a.is_string() && b.is_string()) {
    budget.charge(std::min(a.str().size(), b.str().size()) / kBytesPerStep);
    return a.str() < b.str();
  }
  if ((a.is(Kind::kList) && b.is(Kind::kList)) || (a.is(Kind::kTuple) && b.is(Kind::kTuple))) {
    const auto& x = a.list_data().items;
    const auto& y = b.list_data().items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(budget, x[i], y[i])) return less(budget, x[i], y[i], op);
    }
    return x.size() < y.size();
  }
  fail_value("'" + std::string(op) + "' not supported between instances of '" + std::string(type_name(a)) +
             "' and '" + std::string(type_name(b)) + "'");
}

bool contains(Budget& budget, const Value& haystack, const Value& needle) {
  budget.charge();
  if (haystack.is_string()) {
    if (!needle.is_string()) {
      if (needle.is_undefined()) fail_value(needle.why());
      fail_value("'in <string>' requires string as left operand, not " + std::string(type_name(needle)));
    }
    budget.charge(haystack.str().size() / kBytesPerStep);
    return find_text(haystack.str(), needle.str()) != std::string_view::npos;
  }
  if (haystack.is(Kind::kDict)) return haystack.dict_data().find(budget, needle) != nullptr;
  if (haystack.is(Kind::kRange)) {
    const RangeData& range = haystack.range_data();
    for (int64_t i = 0; i < range.size; ++i) {
      if (equal(budget, Value::integer(range_at(range, i)), needle)) return true;
    }
    return false;
  }
  if (!haystack.is_listlike() && !haystack.is_undefined()) {
    fail_value("argument of type '" + std::string(type_name(haystack)) + "' is not iterable");
  }
  for (const Value& item : iterate(budget, haystack)) {
    if (same(item, needle) || equal(budget, item, needle)) return true;
  }
  return false;
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(value.string_data().chars);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      return static_cast<int64_t>(value.list_data().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict_data().entries.size());
    case Kind::kRange:
      return value.range_data().size;
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop()->items.size());
    default:
      fail_value("object of type '" + std::string(type_name(value)) + "' has no len()");
  }
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_listlike() || value.is(Kind::kDict) ||
         value.is(Kind::kRange) || value.is(Kind::kLoop);
}

std::vector<Value> iterate(Budget& budget, const Value& value) {
  std::vector<Value> out;
  if (value.is(Kind::kGenerator)) {
    ListData& data = value.generator_data();
    budget.charge(data.items.size() - data.next);
    out.assign(data.items.begin() + static_cast<std::ptrdiff_t>(data.next), data.items.end());
    data.next = data.items.size();
    return out;
  }
  if (value.is_listlike()) {
    budget.charge(value.list_data().items.size());
    return value.list_data().items;
  }
  if (value.is(Kind::kString)) {
    budget.charge(value.string_data().chars * 2);
    const std::string& s = value.str();
    out.reserve(value.string_data().chars);
    for (size_t i = 0; i < s.size();) {
      const size_t n = char_bytes(s, i);
      out.push_back(Value::string(s.substr(i, n)));
      i += n;
    }
    return out;
  }
  if (value.is(Kind::kDict)) {
    budget.charge(value.dict_data().entries.size());
    for (const auto& entry : value.dict_data().entries) out.push_back(entry.first);
    return out;
  }
  if (value.is(Kind::kRange)) {
    const RangeData& range = value.range_data();
    budget.charge(static_cast<uint64_t>(range.size));
    for (int64_t i = 0; i < range.size; ++i) out.push_back(Value::integer(range_at(range, i)));
    return out;
  }
  if (value.is_undefined()) return out;
  fail_value("'" + std::string(type_name(value)) + "' object is not iterable");
}

std::string hash_key(Budget& budget, const Value& value) {
  budget.charge();
  switch (value.kind()) {
    case Kind::kString:
      budget.charge_bytes(value.str().size());
      return cat("s", value.str());
    case Kind::kNone:
      return "N";
    case Kind::kUndefined:
      return "U";
    case Kind::kBool:
    case Kind::kInt:
      return cat("n", std::to_string(value.as_int()));
    case Kind::kFloat: {
      const double d = value.as_double();
      if (d == std::floor(d) && std::fabs(d) < 9.0e18)
        return cat("n", std::to_string(static_cast<int64_t>(d)));
      return cat("f", float_repr(d));
    }
    case Kind::kTuple: {
      std::string out = "t";
      for (const Value& item : value.list_data().items) {
        const std::string part = hash_key(budget, item);
        out += std::to_string(part.size()) + ":" + part;
        budget.charge_bytes(out.size());
      }
      return out;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kNamespace:
      fail_value("unhashable type: '" + std::string(type_name(value)) + "'");
    default: {
      const auto address = reinterpret_cast<uintptr_t>(value.identity());
      return cat("p", std::to_string(address));
    }
  }
}

bool has_method(const Value& value, std::string_view name, bool* mutates) {
  *mutates = false;
  switch (value.kind()) {
    case Kind::kString:
      return has(kStringMethods, name);
    case Kind::kDict:
      *mutates = has(kDictMutators, name);
      return *mutates || has(kDictMethods, name);
    case Kind::kList:
      *mutates = has(kListMutators, name);
      return *mutates || has(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return has(kTupleMethods, name);
    case Kind::kFloat:
      return has(kFloatMethods, name);
    case Kind::kLoop:
      return has(kLoopMethods, name);
    case Kind::kHelper:
      return !value.helper().is_joiner && has(kCyclerMethods, name);
    default:
      return false;
  }
}

Value get_attribute(Budget& budget, const Value& value, const std::string& name) {
  if (value.is_undefined()) fail_value(value.why());
  if (value.is(Kind::kNamespace)) budget.charge(value.ns()->attributes.size() / kNamesPerStep);
  bool found = false;
  Value v = python_getattr(value, name, &found);
  if (found) return v;
  if (value.is(Kind::kDict)) {
    if (const Value* entry = value.dict_data().find(name)) return *entry;
  }
  budget.charge();
  return missing(value, name);
}

Value get_item(Budget& budget, const Value& value, const Value& key) {
  if (value.is_undefined()) fail_value(value.why());
  bool found = false;
  Value v = python_getitem(budget, value, key, &found);
  if (found) return v;
  if (key.is_string()) {
    v = python_getattr(value, key.str(), &found);
    return found ? v : missing(value, key.str());
  }
  return Value::undefined(object_name(value) + " has no element " + to_repr(budget, key));
}

Value get_slice(Budget& budget, const Value& value, const Value& start, const Value& stop,
                const Value& step) {
  if (value.is_undefined()) fail_value(value.why());
  const bool sliceable =
      value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kRange);
  if (!sliceable) {
    // jinja2 turns the TypeError or KeyError of a slice on anything else into an undefined value.
    return Value::undefined(object_name(value) + " cannot be sliced");
  }
  const SliceRange s = resolve_slice(start, stop, step, length(value));
  budget.charge(1 + static_cast<uint64_t>(s.size) / (value.is_string() ? kBytesPerStep : 1));
  if (value.is_string()) {
    budget.charge(value.str().size() / kBytesPerStep);
    return slice_string(value, s);
  }
  if (value.is(Kind::kRange)) {
    const RangeData& range = value.range_data();
    return Value::range({range_at(range, s.start), range.step * s.step, s.size, range_at(range, s.stop)});
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(s.size));
  for (int64_t i = 0; i < s.size; ++i) {
    items.push_back(value.list_data().items[static_cast<size_t>(s.start + i * s.step)]);
  }
  return Value::list(std::move(items), value.kind());
}

}  // namespace isthmus::jinja
