#include "apps/isthmus/model_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "tensor/dtype.h"

namespace isthmus::cli {
namespace {

constexpr size_t kShownText = 100;
constexpr size_t kShownItems = 6;

std::vector<TypeShare> type_shares(const GgufFile& file) {
  std::map<std::string, TypeShare> by_type;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeShare& share = by_type[std::string(dtype_info(tensor.type).name)];
    share.tensors += 1;
    share.weights += tensor.cols() * tensor.rows();
    share.bytes += tensor.data.size();
  }
  std::vector<TypeShare> shares;
  for (auto& [name, share] : by_type) {
    share.type = name;
    shares.push_back(share);
  }
  std::sort(shares.begin(), shares.end(),
            [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  return shares;
}

/// A number that may be given once or per layer; the largest of the layers.
Result<uint64_t> largest(const GgufFile& file, const std::string& key) {
  if (!file.has(key)) return uint64_t{0};
  ISTHMUS_ASSIGN_OR_RETURN(const GgufType type, file.type_of(key));
  if (type != GgufType::kArray) return file.get_uint(key);
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<int64_t> values, file.get_ints(key));
  int64_t most = 0;
  for (const int64_t value : values) most = std::max(most, value);
  return static_cast<uint64_t>(most);
}

Result<std::string> tokenizer_name(const GgufFile& file) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string_view model, file.get_string_or("tokenizer.ggml.model", ""));
  ISTHMUS_ASSIGN_OR_RETURN(const std::string_view pre, file.get_string_or("tokenizer.ggml.pre", ""));
  return pre.empty() ? std::string(model) : fmt::format("{}/{}", model, pre);
}

Result<uint64_t> vocabulary_size(const GgufFile& file) {
  if (!file.has("tokenizer.ggml.tokens")) return uint64_t{0};
  ISTHMUS_ASSIGN_OR_RETURN(const auto tokens, file.get_strings("tokenizer.ggml.tokens"));
  return uint64_t{tokens.size()};
}

Result<nlohmann::ordered_json> array_json(const GgufFile& file, const std::string& key, GgufType element) {
  switch (element) {
    case GgufType::kString: {
      ISTHMUS_ASSIGN_OR_RETURN(const auto values, file.get_strings(key));
      return nlohmann::ordered_json(std::vector<std::string>(values.begin(), values.end()));
    }
    case GgufType::kF32:
    case GgufType::kF64: {
      ISTHMUS_ASSIGN_OR_RETURN(const auto values, file.get_floats(key));
      return nlohmann::ordered_json(values);
    }
    default: {
      ISTHMUS_ASSIGN_OR_RETURN(const auto values, file.get_ints(key));
      return nlohmann::ordered_json(values);
    }
  }
}

}  // namespace

Result<ModelFacts> read_facts(const GgufFile& file) {
  ModelFacts facts;
  ISTHMUS_ASSIGN_OR_RETURN(facts.architecture, file.get_string_or("general.architecture", ""));
  ISTHMUS_ASSIGN_OR_RETURN(facts.name, file.get_string_or("general.name", ""));
  ISTHMUS_ASSIGN_OR_RETURN(facts.licence, file.get_string_or("general.license", ""));
  const std::string prefix = facts.architecture + ".";
  ISTHMUS_ASSIGN_OR_RETURN(facts.context, file.get_uint_or(prefix + "context_length", 0));
  ISTHMUS_ASSIGN_OR_RETURN(facts.layers, file.get_uint_or(prefix + "block_count", 0));
  ISTHMUS_ASSIGN_OR_RETURN(facts.width, file.get_uint_or(prefix + "embedding_length", 0));
  ISTHMUS_ASSIGN_OR_RETURN(facts.heads, largest(file, prefix + "attention.head_count"));
  ISTHMUS_ASSIGN_OR_RETURN(facts.kv_heads, largest(file, prefix + "attention.head_count_kv"));
  ISTHMUS_ASSIGN_OR_RETURN(facts.feed_forward, largest(file, prefix + "feed_forward_length"));
  ISTHMUS_ASSIGN_OR_RETURN(facts.vocabulary, vocabulary_size(file));
  ISTHMUS_ASSIGN_OR_RETURN(facts.tokenizer, tokenizer_name(file));
  ISTHMUS_ASSIGN_OR_RETURN(facts.chat_template, file.get_string_or("tokenizer.chat_template", ""));
  facts.types = type_shares(file);
  for (const TypeShare& share : facts.types) facts.weights += share.weights;
  return facts;
}

Result<nlohmann::ordered_json> value_json(const GgufFile& file, const std::string& key) {
  GgufType element{};
  ISTHMUS_ASSIGN_OR_RETURN(const GgufType type, file.type_of(key, &element));
  switch (type) {
    case GgufType::kArray:
      return array_json(file, key, element);
    case GgufType::kString: {
      ISTHMUS_ASSIGN_OR_RETURN(const std::string_view text, file.get_string(key));
      return nlohmann::ordered_json(std::string(text));
    }
    case GgufType::kBool: {
      ISTHMUS_ASSIGN_OR_RETURN(const bool value, file.get_bool(key));
      return nlohmann::ordered_json(value);
    }
    case GgufType::kF32:
    case GgufType::kF64: {
      ISTHMUS_ASSIGN_OR_RETURN(const double value, file.get_float(key));
      return nlohmann::ordered_json(value);
    }
    case GgufType::kU64: {
      ISTHMUS_ASSIGN_OR_RETURN(const uint64_t value, file.get_uint(key));
      return nlohmann::ordered_json(value);
    }
    default: {
      ISTHMUS_ASSIGN_OR_RETURN(const int64_t value, file.get_int(key));
      return nlohmann::ordered_json(value);
    }
  }
}

Result<std::string> value_text(const GgufFile& file, const std::string& key) {
  ISTHMUS_ASSIGN_OR_RETURN(nlohmann::ordered_json value, value_json(file, key));
  const size_t count = value.is_array() ? value.size() : 0;
  if (count > kShownItems) value.erase(value.begin() + kShownItems, value.end());
  std::string text = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (count > kShownItems) {
    text.pop_back();
    return fmt::format("{}, … {} in all]", text, count);
  }
  if (text.size() <= kShownText) return text;
  size_t cut = kShownText;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;  // not inside a character
  return fmt::format("{}… ({} bytes)", text.substr(0, cut), text.size());
}

std::string shape_text(const GgufTensor& tensor) {
  std::string out;
  for (uint32_t i = 0; i < tensor.n_dims; ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : " x ", tensor.dims[i]);
  }
  return out;
}

}  // namespace isthmus::cli
