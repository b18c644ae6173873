// What a model file says about itself, read from its header alone: for `isthmus show`. Weights are not
// touched.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/gguf.h"

namespace isthmus::cli {

/// Tensors of one element type.
struct TypeShare {
  std::string type;
  uint64_t tensors = 0;
  uint64_t weights = 0;
  uint64_t bytes = 0;
};

struct ModelFacts {
  std::string architecture;
  std::string name;
  std::string licence;  // as the file states it; may be empty
  uint64_t weights = 0;
  uint64_t context = 0;  // 0: not stated
  uint64_t layers = 0;
  uint64_t width = 0;
  uint64_t heads = 0;
  uint64_t kv_heads = 0;
  uint64_t feed_forward = 0;
  uint64_t vocabulary = 0;
  std::string tokenizer;  // "gpt2/smollm"
  std::string chat_template;
  std::vector<TypeShare> types;  // most bytes first
};

/// kCorrupt when a fact is there but of the wrong kind.
Result<ModelFacts> read_facts(const GgufFile& file);

/// One value of the metadata for people: long texts and arrays are shortened and say so.
Result<std::string> value_text(const GgufFile& file, const std::string& key);

/// One value of the metadata, whole; arrays as arrays.
Result<nlohmann::ordered_json> value_json(const GgufFile& file, const std::string& key);

/// "576 x 49152", columns first.
std::string shape_text(const GgufTensor& tensor);

}  // namespace isthmus::cli
