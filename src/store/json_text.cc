#include "store/json_text.h"

namespace isthmus {
namespace {

/// Deepest nesting of brackets outside strings, as far as the text is JSON at all.
size_t depth_of(std::string_view text) {
  size_t depth = 0;
  size_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

const nlohmann::json* member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

Status wrong(const char* key, const char* wanted, bool missing) {
  return corrupt(std::string("'") + key + "' " + (missing ? "is missing" : "is not ") +
                 (missing ? "" : wanted));
}

}  // namespace

Result<nlohmann::json> parse_json_object(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return resource_exhausted("JSON of over " + std::to_string(limits.bytes) + " bytes");
  }
  if (depth_of(text) > limits.depth) {
    return resource_exhausted("JSON nested deeper than " + std::to_string(limits.depth));
  }
  nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  if (value.is_discarded()) return corrupt("not JSON");
  if (!value.is_object()) return corrupt("JSON, but not an object");
  return value;
}

std::string json_text(const nlohmann::json& value) {
  return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<std::string> json_string(const nlohmann::json& object, const char* key) {
  const nlohmann::json* value = member(object, key);
  if (value == nullptr || !value->is_string()) return wrong(key, "a string", value == nullptr);
  return value->get<std::string>();
}

Result<std::string> json_string_or(const nlohmann::json& object, const char* key,
                                   const std::string& fallback) {
  return member(object, key) == nullptr ? Result<std::string>(fallback) : json_string(object, key);
}

Result<uint64_t> json_uint(const nlohmann::json& object, const char* key) {
  const nlohmann::json* value = member(object, key);
  if (value == nullptr || !value->is_number_unsigned()) {
    return wrong(key, "a whole number of 0 or more", value == nullptr);
  }
  return value->get<uint64_t>();
}

Result<bool> json_bool_or(const nlohmann::json& object, const char* key, bool fallback) {
  const nlohmann::json* value = member(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong(key, "true or false", false);
  return value->get<bool>();
}

}  // namespace isthmus
