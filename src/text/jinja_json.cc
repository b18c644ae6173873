// JSON in (the render's context) and out (the tojson filter), the latter exactly as Python's json.dumps
// writes it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja_interp.h"
#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

Value convert(const nlohmann::ordered_json& json, Budget& budget, uint32_t depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kMaxDataDepth) {
    fail(Code::kResourceExhausted, "the context is nested deeper than the limit");
  }
  switch (json.type()) {
    case Type::null:
      return Value::none();
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value > static_cast<uint64_t>(INT64_MAX)) {
        fail(Code::kUnsupported, "an integer of the context is beyond 64 bits");
      }
      return Value::integer(static_cast<int64_t>(value));
    }
    case Type::number_float:
      return Value::real(json.get<double>());
    case Type::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.check_size(text.size());
      return Value::string(text);
    }
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, budget, depth + 1));
      return Value::list(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<DictData>();
      for (const auto& item : json.items()) {
        dict->set(budget, Value::string(item.key()), convert(item.value(), budget, depth + 1));
      }
      return Value::dict(std::move(dict));
    }
    default:
      fail(Code::kInvalidArgument, "the context holds a value that is not JSON");
  }
}

void write_text(Sink& sink, std::string_view text, bool ascii) {
  sink.put('"');
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_char(text, i);
    char buffer[16];
    const auto unit = [&](unsigned value) {
      std::snprintf(buffer, sizeof buffer, "\\u%04x", value);
      sink.put(buffer);
    };
    constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
    constexpr std::string_view kTo = "\"\\nrtfb";
    const size_t k = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    if (k != std::string_view::npos) {
      sink.put('\\');
      sink.put(kTo[k]);
    } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
      if (c == 0x7F) {
        sink.put('\x7F');
      } else {
        unit(static_cast<unsigned>(c));
      }
    } else if (ascii && c >= 0x10000) {
      unit(static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10U)));
      unit(static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FFU)));
    } else {
      sink.put(text.substr(start, i - start));
    }
  }
  sink.put('"');
}

std::string json_float(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return float_repr(d);
}

void new_line(Sink& sink, const JsonStyle& style, uint32_t depth) {
  if (!style.indent) return;
  sink.put('\n');
  for (uint32_t i = 0; i < depth; ++i) sink.put(*style.indent);
}

[[noreturn]] void not_json(const Value& value) {
  if (value.is_undefined()) fail_value(value.why() + ", so it cannot be written as JSON");
  fail_value("object of type " + std::string(type_name(value)) + " is not JSON serializable");
}

std::string key_text(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return key.str();
    case Kind::kNone:
      return "null";
    case Kind::kBool:
      return key.as_bool() ? "true" : "false";
    case Kind::kInt:
      return std::to_string(key.as_int());
    case Kind::kFloat:
      return json_float(key.as_double());
    default:
      fail_value("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
  }
}

void write(Sink& sink, const Value& value, const JsonStyle& style, uint32_t depth);

void write_array(Sink& sink, const Value& value, const JsonStyle& style, uint32_t depth) {
  const std::vector<Value>& items = value.list_data().items;
  if (items.empty()) return sink.put("[]");
  sink.put('[');
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) sink.put(style.item_separator);
    new_line(sink, style, depth + 1);
    write(sink, items[i], style, depth + 1);
  }
  new_line(sink, style, depth);
  sink.put(']');
}

void write_object(Sink& sink, const Value& value, const JsonStyle& style, uint32_t depth) {
  const auto& entries = value.dict_data().entries;
  if (entries.empty()) return sink.put("{}");
  std::vector<const std::pair<Value, Value>*> order;
  order.reserve(entries.size());
  for (const auto& entry : entries) order.push_back(&entry);
  if (style.sort_keys) {
    std::stable_sort(order.begin(), order.end(), [&sink](const auto* a, const auto* b) {
      return less(sink.budget(), a->first, b->first);
    });
  }
  sink.put('{');
  bool first = true;
  for (const auto* entry : order) {
    if (!first) sink.put(style.item_separator);
    first = false;
    new_line(sink, style, depth + 1);
    write_text(sink, key_text(entry->first), style.ascii);
    sink.put(style.key_separator);
    write(sink, entry->second, style, depth + 1);
  }
  new_line(sink, style, depth);
  sink.put('}');
}

void write(Sink& sink, const Value& value, const JsonStyle& style, uint32_t depth) {
  sink.budget().charge();
  switch (value.kind()) {
    case Kind::kNone:
      return sink.put("null");
    case Kind::kBool:
      return sink.put(value.as_bool() ? "true" : "false");
    case Kind::kInt:
      return sink.put(std::to_string(value.as_int()));
    case Kind::kFloat:
      return sink.put(json_float(value.as_double()));
    case Kind::kString:
      return write_text(sink, value.str(), style.ascii);
    case Kind::kList:
    case Kind::kTuple:
      return write_array(sink, value, style, depth);
    case Kind::kDict:
      return write_object(sink, value, style, depth);
    default:
      not_json(value);
  }
}

}  // namespace

Value from_json(const nlohmann::ordered_json& json, uint64_t max_bytes) {
  // The caller's own data: its size is not charged to the template's steps.
  Budget budget(UINT64_MAX, max_bytes);
  return convert(json, budget, 0);
}

void write_json(Sink& sink, const Value& value, const JsonStyle& style) { write(sink, value, style, 0); }

}  // namespace isthmus::jinja
