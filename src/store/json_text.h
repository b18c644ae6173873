// JSON from outside (catalogues, manifests, records), read with limits; and the typed getters that say what
// is wrong and where. Nothing here throws. Thread-safe.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace isthmus {

struct JsonLimits {
  size_t bytes = size_t{1} << 20;
  size_t depth = 16;
};

/// Parses one JSON object. kCorrupt for anything else, kResourceExhausted above the limits.
Result<nlohmann::json> parse_json_object(std::string_view text, const JsonLimits& limits = {});

/// `text` of JSON; bytes that are not UTF-8 come out as replacement characters.
std::string json_text(const nlohmann::json& value);

// Members of an object. kCorrupt names the key when it is missing or of another type.
Result<std::string> json_string(const nlohmann::json& object, const char* key);
Result<std::string> json_string_or(const nlohmann::json& object, const char* key,
                                   const std::string& fallback);
Result<uint64_t> json_uint(const nlohmann::json& object, const char* key);
Result<bool> json_bool_or(const nlohmann::json& object, const char* key, bool fallback);

}  // namespace isthmus
