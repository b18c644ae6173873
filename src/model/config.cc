#include "model/config.h"

#include <cmath>

#include "tensor/quant.h"

namespace isthmus {
namespace {

// Far above every published model of the families; they keep products of sizes inside 64 bits and buffers
// sane.
constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxWidth = 1 << 20;
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxHeadDim = 1024;
constexpr uint64_t kMaxVocab = 1 << 24;
constexpr uint64_t kMaxContext = 1 << 28;

/// "<architecture>.<name>".
std::string key_of(const ModelConfig& config, const char* name) { return config.architecture + "." + name; }

Status check_range(const std::string& key, uint64_t value, uint64_t most) {
  if (value >= 1 && value <= most) return ok_status();
  return corrupt(key + " is " + std::to_string(value) + ", outside 1 to " + std::to_string(most));
}

Status read_size(const GgufFile& file, const std::string& key, uint64_t most, size_t& out) {
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t value, file.get_uint(key));
  ISTHMUS_RETURN_IF_ERROR(check_range(key, value, most));
  out = static_cast<size_t>(value);
  return ok_status();
}

Status read_size_or(const GgufFile& file, const std::string& key, uint64_t most, size_t fallback,
                    size_t& out) {
  out = fallback;
  return file.has(key) ? read_size(file, key, most, out) : ok_status();
}

Status read_heads(const GgufFile& file, ModelConfig& config) {
  ISTHMUS_RETURN_IF_ERROR(read_size(file, key_of(config, "attention.head_count"), kMaxHeads, config.n_heads));
  const std::string kv_key = key_of(config, "attention.head_count_kv");
  ISTHMUS_RETURN_IF_ERROR(read_size_or(file, kv_key, kMaxHeads, config.n_heads, config.n_kv_heads));
  if (config.n_heads % config.n_kv_heads != 0) {
    return corrupt(kv_key + " is " + std::to_string(config.n_kv_heads) + ", which does not divide the " +
                   std::to_string(config.n_heads) + " heads");
  }
  const std::string dim_key = key_of(config, "attention.key_length");
  ISTHMUS_RETURN_IF_ERROR(
      read_size_or(file, dim_key, kMaxHeadDim, config.d_model / config.n_heads, config.head_dim));
  if (config.head_dim == 0 || config.head_dim % 8 != 0 || config.head_dim > kMaxHeadDim) {
    return unsupported(dim_key + ": heads of " + std::to_string(config.head_dim) +
                       " values; a multiple of 8 up to " + std::to_string(kMaxHeadDim) + " is needed");
  }
  size_t value_dim = 0;
  const std::string value_key = key_of(config, "attention.value_length");
  ISTHMUS_RETURN_IF_ERROR(read_size_or(file, value_key, kMaxHeadDim, config.head_dim, value_dim));
  if (value_dim != config.head_dim) {
    return unsupported(value_key + " is " + std::to_string(value_dim) + " but keys have " +
                       std::to_string(config.head_dim) + " values; they must be equal");
  }
  return ok_status();
}

Status read_factors(const GgufFile& file, const char* name, size_t n, std::vector<float>& out) {
  const GgufTensor* tensor = file.find(name);
  if (tensor == nullptr) return ok_status();
  if (tensor->cols() != n || tensor->rows() != 1) {
    return corrupt("tensor '" + std::string(name) + "' has " + std::to_string(tensor->cols()) +
                   " values, the rotated dimensions need " + std::to_string(n));
  }
  out.resize(n);
  return dequantize_row(tensor->type, tensor->data.data(), n, out.data()).with_context(name);
}

Result<RopeScaling> scaling_of(const ModelConfig& config, std::string_view text) {
  if (text == "none" || text == "longrope") return RopeScaling::kNone;
  if (text == "linear") return RopeScaling::kLinear;
  if (text == "yarn") return RopeScaling::kYarn;
  if (text == "llama3") return RopeScaling::kLlama3;
  return unsupported(key_of(config, "rope.scaling.type") + " is '" + std::string(text) +
                     "'; known are none, linear, yarn, longrope, llama3");
}

/// The keys of "llama3": all are needed, since no default would be more than a guess about the model.
Status read_llama3_scaling(const GgufFile& file, ModelConfig& config) {
  RopeParams& rope = config.rope;
  // Converters that write the divisors as a tensor have put this very scaling into it.
  if (file.find("rope_freqs.weight") != nullptr) {
    rope.scaling = RopeScaling::kNone;
    return ok_status();
  }
  const std::string prefix = key_of(config, "rope.scaling.");
  ISTHMUS_ASSIGN_OR_RETURN(rope.factor, file.get_float(prefix + "factor"));
  ISTHMUS_ASSIGN_OR_RETURN(rope.low_freq_factor, file.get_float(prefix + "low_freq_factor"));
  ISTHMUS_ASSIGN_OR_RETURN(rope.high_freq_factor, file.get_float(prefix + "high_freq_factor"));
  ISTHMUS_RETURN_IF_ERROR(
      read_size(file, prefix + "original_context_length", kMaxContext, rope.original_context));
  if (!(rope.factor >= 1)) return corrupt(prefix + "factor is " + std::to_string(rope.factor) + ", below 1");
  if (!(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor)) {
    return corrupt(prefix + "low_freq_factor " + std::to_string(rope.low_freq_factor) +
                   " and high_freq_factor " + std::to_string(rope.high_freq_factor) +
                   " must be positive and ascending");
  }
  return ok_status();
}

}  // namespace

Status read_common_config(const GgufFile& file, ModelConfig& config) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string_view architecture, file.get_string("general.architecture"));
  ISTHMUS_ASSIGN_OR_RETURN(const std::string_view name, file.get_string_or("general.name", ""));
  config.architecture = architecture;
  config.name = name;
  ISTHMUS_RETURN_IF_ERROR(read_size(file, key_of(config, "block_count"), kMaxLayers, config.layers));
  ISTHMUS_RETURN_IF_ERROR(read_size(file, key_of(config, "embedding_length"), kMaxWidth, config.d_model));
  ISTHMUS_RETURN_IF_ERROR(read_size(file, key_of(config, "feed_forward_length"), kMaxWidth, config.d_ff));
  ISTHMUS_RETURN_IF_ERROR(read_size(file, key_of(config, "context_length"), kMaxContext, config.context));
  ISTHMUS_RETURN_IF_ERROR(read_heads(file, config));
  const std::string eps_key = key_of(config, "attention.layer_norm_rms_epsilon");
  ISTHMUS_ASSIGN_OR_RETURN(const double eps, file.get_float(eps_key));
  if (!(eps > 0 && eps < 1)) return corrupt(eps_key + " is " + std::to_string(eps) + ", outside (0, 1)");
  config.norm_eps = static_cast<float>(eps);
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim));

  ISTHMUS_ASSIGN_OR_RETURN(const GgufTensor* embedding, file.tensor("token_embd.weight"));
  if (embedding->cols() != config.d_model) {
    return corrupt("tensor 'token_embd.weight' has rows of " + std::to_string(embedding->cols()) +
                   " values, " + key_of(config, "embedding_length") + " says " +
                   std::to_string(config.d_model));
  }
  ISTHMUS_RETURN_IF_ERROR(check_range("rows of tensor 'token_embd.weight'", embedding->rows(), kMaxVocab));
  config.vocab = static_cast<size_t>(embedding->rows());
  config.tied_head = file.find("output.weight") == nullptr;
  return ok_status();
}

Status read_rope_config(const GgufFile& file, RopeStyle style, ModelConfig& config) {
  RopeParams& rope = config.rope;
  rope.style = style;
  const std::string dims_key = key_of(config, "rope.dimension_count");
  ISTHMUS_RETURN_IF_ERROR(read_size_or(file, dims_key, kMaxHeadDim, config.head_dim, rope.dims));
  if (rope.dims % 2 != 0 || rope.dims > config.head_dim) {
    return corrupt(dims_key + " is " + std::to_string(rope.dims) + " with heads of " +
                   std::to_string(config.head_dim) + " values");
  }
  ISTHMUS_ASSIGN_OR_RETURN(rope.base, file.get_float_or(key_of(config, "rope.freq_base"), 10000.0));
  // A file without a type but with a factor means linear scaling, as the format's older files do.
  ISTHMUS_ASSIGN_OR_RETURN(const std::string_view type,
                           file.get_string_or(key_of(config, "rope.scaling.type"), "linear"));
  ISTHMUS_ASSIGN_OR_RETURN(rope.scaling, scaling_of(config, type));
  ISTHMUS_ASSIGN_OR_RETURN(const double old_factor,
                           file.get_float_or(key_of(config, "rope.scale_linear"), 0.0));
  ISTHMUS_ASSIGN_OR_RETURN(const double factor,
                           file.get_float_or(key_of(config, "rope.scaling.factor"), old_factor));
  rope.factor = factor > 0 ? factor : 1.0;
  if (rope.factor == 1.0 && rope.scaling == RopeScaling::kLinear) rope.scaling = RopeScaling::kNone;
  size_t original = 0;
  ISTHMUS_RETURN_IF_ERROR(read_size_or(file, key_of(config, "rope.scaling.original_context_length"),
                                       kMaxContext, config.context, original));
  rope.original_context = original;
  if (rope.scaling == RopeScaling::kLlama3) ISTHMUS_RETURN_IF_ERROR(read_llama3_scaling(file, config));
  ISTHMUS_ASSIGN_OR_RETURN(rope.attention_factor,
                           file.get_float_or(key_of(config, "rope.scaling.attn_factor"), 1.0));
  ISTHMUS_ASSIGN_OR_RETURN(rope.yarn_ext_factor,
                           file.get_float_or(key_of(config, "rope.scaling.yarn_ext_factor"), 1.0));
  ISTHMUS_ASSIGN_OR_RETURN(rope.yarn_beta_fast,
                           file.get_float_or(key_of(config, "rope.scaling.yarn_beta_fast"), 32.0));
  ISTHMUS_ASSIGN_OR_RETURN(rope.yarn_beta_slow,
                           file.get_float_or(key_of(config, "rope.scaling.yarn_beta_slow"), 1.0));
  ISTHMUS_RETURN_IF_ERROR(read_factors(file, "rope_freqs.weight", rope.dims / 2, config.rope_factors));
  ISTHMUS_RETURN_IF_ERROR(
      read_factors(file, "rope_factors_long.weight", rope.dims / 2, config.rope_factors_long));
  return read_factors(file, "rope_factors_short.weight", rope.dims / 2, config.rope_factors_short);
}

RopeParams rope_for_context(const ModelConfig& config, size_t context) {
  RopeParams rope = config.rope;
  const bool beyond = context > config.rope.original_context;
  if (!config.rope_factors_long.empty() && !config.rope_factors_short.empty()) {
    rope.frequency_factors = beyond ? config.rope_factors_long : config.rope_factors_short;
  } else {
    rope.frequency_factors = config.rope_factors;
  }
  return rope;
}

}  // namespace isthmus
