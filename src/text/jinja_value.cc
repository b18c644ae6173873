#include "text/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

uint32_t checked_depth(uint32_t inner) {
  if (inner + 1 > kMaxDataDepth) {
    fail(Code::kResourceExhausted, "lists and dicts of the template are nested deeper than the limit");
  }
  return inner + 1;
}

uint32_t depth_of_items(const std::vector<Value>& items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return checked_depth(depth);
}

}  // namespace

Value Value::boolean(bool b) {
  Value v(Kind::kBool);
  v.num_.i = b ? 1 : 0;
  return v;
}

Value Value::integer(int64_t i) {
  Value v(Kind::kInt);
  v.num_.i = i;
  return v;
}

Value Value::real(double d) {
  Value v(Kind::kFloat);
  v.num_.d = d;
  return v;
}

Value Value::string(std::string bytes, bool markup) {
  Value v(Kind::kString);
  const size_t chars = count_chars(bytes);
  v.ptr_ = std::make_shared<StringData>(StringData{std::move(bytes), chars, markup});
  return v;
}

Value Value::list(std::vector<Value> items, Kind kind) {
  auto data = std::make_shared<ListData>();
  data->depth = depth_of_items(items);
  data->items = std::move(items);
  return list_of(std::move(data), kind);
}

Value Value::list_of(std::shared_ptr<ListData> data, Kind kind) {
  Value v(kind);
  v.ptr_ = std::move(data);
  return v;
}

Value Value::dict(std::shared_ptr<DictData> data) {
  Value v(Kind::kDict);
  v.ptr_ = std::move(data);
  return v;
}

Value Value::range(RangeData range) {
  Value v(Kind::kRange);
  v.ptr_ = std::make_shared<RangeData>(range);
  return v;
}

Value Value::undefined(std::string why) {
  Value v;
  v.ptr_ = std::make_shared<std::string>(std::move(why));
  return v;
}

Value Value::of(Namespace* ns) {
  Value v(Kind::kNamespace);
  v.num_.p = ns;
  return v;
}

Value Value::of(LoopState* loop) {
  Value v(Kind::kLoop);
  v.num_.p = loop;
  return v;
}

Value Value::of(std::shared_ptr<Callable> callable) {
  Value v(Kind::kCallable);
  checked_depth(callable->self.depth());
  v.ptr_ = std::move(callable);
  return v;
}

Value Value::of(std::shared_ptr<Helper> helper) {
  Value v(Kind::kHelper);
  depth_of_items(helper->items);
  v.ptr_ = std::move(helper);
  return v;
}

const std::string& Value::why() const {
  static const std::string unnamed = "the value is undefined";
  return ptr_ ? *static_cast<const std::string*>(ptr_.get()) : unnamed;
}

uint32_t Value::depth() const {
  if (is_listlike()) return list_data().depth;
  switch (kind_) {
    case Kind::kDict:
      return dict_data().depth;
    case Kind::kCallable:
      return callable().self.depth() + 1;
    case Kind::kHelper: {
      uint32_t depth = 0;
      for (const Value& item : helper().items) depth = std::max(depth, item.depth());
      return depth + 1;
    }
    default:
      return 0;
  }
}

const Value* DictData::find(Budget& budget, const Value& key) const {
  if (key.is_string() && entries.size() <= kSmall) return find(key.str());
  const std::string wanted = hash_key(budget, key);
  if (entries.size() > kSmall) {
    const auto it = index.find(wanted);
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [k, v] : entries) {
    if (equal(budget, k, key)) return &v;
  }
  return nullptr;
}

const Value* DictData::find(std::string_view key) const {
  if (entries.size() > kSmall) {
    const auto it = index.find(cat("s", key));
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [k, v] : entries) {
    if (k.is_string() && k.str() == key) return &v;
  }
  return nullptr;
}

void DictData::set(Budget& budget, Value key, Value value) {
  budget.charge(4);
  depth = std::max(depth, checked_depth(std::max(key.depth(), value.depth())));
  if (const Value* found = find(budget, key)) {
    // find() hands out a pointer into `entries`, which this object may change.
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kSmall + 1) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(hash_key(budget, entries[i].first), i);
  } else if (entries.size() > kSmall) {
    index.emplace(hash_key(budget, entries.back().first), entries.size() - 1);
  }
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kKeys:
      return "dict_keys";
    case Kind::kValues:
      return "dict_values";
    case Kind::kItems:
      return "dict_items";
    case Kind::kGenerator:
      return "generator";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kHelper:
      return value.helper().is_joiner ? "Joiner" : "Cycler";
    case Kind::kCallable:
      return value.callable().macro != nullptr ? "Macro" : "function";
  }
  return "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0.0;
    case Kind::kString:
      return !value.str().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      return !value.list_data().items.empty();
    case Kind::kDict:
      return !value.dict_data().entries.empty();
    case Kind::kRange:
      return value.range_data().size != 0;
    case Kind::kLoop:
      return !value.loop()->items.empty();
    case Kind::kGenerator:
    case Kind::kNamespace:
    case Kind::kHelper:
    case Kind::kCallable:
      return true;
  }
  return true;
}

// Layout of repr(float): shortest digits that read back the same, in positional form for decimal exponents
// from -4 to 15, otherwise with an exponent of at least two digits.
std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const bool negative = text[0] == '-';
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void write_string_repr(Sink& sink, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  sink.put(quote);
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_char(text, i);
    char buffer[16];
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      sink.put('\\');
      sink.put(static_cast<char>(c));
    } else if (c == '\n') {
      sink.put("\\n");
    } else if (c == '\r') {
      sink.put("\\r");
    } else if (c == '\t') {
      sink.put("\\t");
    } else if (is_printable(c)) {
      sink.put(text.substr(start, i - start));
    } else {
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(c));
      sink.put(buffer);
    }
  }
  sink.put(quote);
}

namespace {

void write_items(Sink& sink, const std::vector<Value>& items, uint32_t depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) sink.put(", ");
    write_repr(sink, items[i], depth);
  }
}

void write_list(Sink& sink, const Value& value, uint32_t depth) {
  const std::vector<Value>& items = value.list_data().items;
  switch (value.kind()) {
    case Kind::kTuple:
      sink.put('(');
      write_items(sink, items, depth);
      sink.put(items.size() == 1 ? ",)" : ")");
      return;
    case Kind::kGenerator:
      sink.put("<generator object>");
      return;
    case Kind::kList:
      sink.put('[');
      write_items(sink, items, depth);
      sink.put(']');
      return;
    default:
      sink.put(type_name(value));
      sink.put("([");
      write_items(sink, items, depth);
      sink.put("])");
  }
}

template <class Entries>
void write_entries(Sink& sink, const Entries& entries, uint32_t depth) {
  sink.put('{');
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) sink.put(", ");
    first = false;
    if constexpr (std::is_same_v<std::decay_t<decltype(key)>, std::string>) {
      write_string_repr(sink, key);
    } else {
      write_repr(sink, key, depth);
    }
    sink.put(": ");
    write_repr(sink, value, depth);
  }
  sink.put('}');
}

void write_range(Sink& sink, const RangeData& range) {
  sink.put(cat("range(", std::to_string(range.start), ", ", std::to_string(range.stop)));
  if (range.step != 1) sink.put(", " + std::to_string(range.step));
  sink.put(')');
}

}  // namespace

void write_repr(Sink& sink, const Value& value, uint32_t depth) {
  sink.budget().charge();
  if (depth > kMaxDataDepth) fail(Code::kResourceExhausted, "a value that contains itself cannot be printed");
  if (value.is_listlike()) return write_list(sink, value, depth + 1);
  switch (value.kind()) {
    case Kind::kUndefined:
      return sink.put("Undefined");
    case Kind::kNone:
      return sink.put("None");
    case Kind::kBool:
      return sink.put(value.as_bool() ? "True" : "False");
    case Kind::kInt:
      return sink.put(std::to_string(value.as_int()));
    case Kind::kFloat:
      return sink.put(float_repr(value.as_double()));
    case Kind::kString:
      if (!value.is_markup()) return write_string_repr(sink, value.str());
      sink.put("Markup(");
      write_string_repr(sink, value.str());
      return sink.put(')');
    case Kind::kDict:
      return write_entries(sink, value.dict_data().entries, depth + 1);
    case Kind::kRange:
      return write_range(sink, value.range_data());
    case Kind::kNamespace:
      sink.put("<Namespace ");
      write_entries(sink, value.ns()->attributes, depth + 1);
      return sink.put('>');
    case Kind::kLoop:
      return sink.put("<LoopContext " + std::to_string(value.loop()->index0 + 1) + "/" +
                      std::to_string(value.loop()->items.size()) + ">");
    case Kind::kCallable:
      if (value.callable().macro == nullptr) return sink.put("<function " + value.callable().name + ">");
      sink.put("<Macro ");
      write_string_repr(sink, value.callable().name);
      return sink.put('>');
    default:
      sink.put('<');
      sink.put(type_name(value));
      sink.put('>');
  }
}

void write_str(Sink& sink, const Value& value) {
  if (value.is_string()) return sink.put(value.str());
  if (value.is_undefined()) return;
  write_repr(sink, value);
}

std::string to_str(Budget& budget, const Value& value) {
  Sink sink(budget);
  write_str(sink, value);
  return sink.take();
}

std::string to_repr(Budget& budget, const Value& value) {
  Sink sink(budget);
  write_repr(sink, value);
  return sink.take();
}

}  // namespace isthmus::jinja
