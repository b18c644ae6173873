// What a model is: sizes, positions and the switches in which the architecture families differ, read from a
// GGUF's metadata. Plain data; immutable after reading. Every value that later sizes a buffer is checked
// against a limit and against the tensors, because model files are untrusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/gguf.h"
#include "ops/rope.h"

namespace isthmus {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name; may be empty
  size_t layers = 0;
  size_t d_model = 0;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t d_ff = 0;
  size_t vocab = 0;
  size_t context = 0;  // tokens the model was trained for
  float norm_eps = 0;
  float attention_scale = 0;  // 1 / sqrt(head_dim) unless the family says otherwise
  float embedding_scale = 1;
  float attention_softcap = 0;  // 0 = off
  bool tied_head = false;       // the output head is the token embedding

  RopeParams rope;                       // of layers with full attention; frequency factors are kept below
  RopeParams rope_local;                 // of layers with a sliding window
  std::vector<float> rope_factors;       // divisors of the frequencies (Llama 3); empty = none
  std::vector<float> rope_factors_long;  // LongRoPE: for contexts above rope.original_context
  std::vector<float> rope_factors_short;

  size_t sliding_window = 0;      // tokens a windowed layer sees, itself included; 0 = no such layers
  std::vector<bool> layer_local;  // [layers]: true where the window applies

  size_t q_dim() const { return n_heads * head_dim; }
  size_t kv_dim() const { return n_kv_heads * head_dim; }
  size_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
  bool is_local(size_t layer) const { return sliding_window != 0 && layer_local[layer]; }
};

/// Reads the keys that all families share ("<architecture>.block_count" and so on) into `config`, with
/// limits. The key is named in every error.
Status read_common_config(const GgufFile& file, ModelConfig& config);

/// Reads RoPE dimensions, base and scaling (none, linear, yarn, longrope, llama3) and the factor tensors
/// rope_freqs.weight, rope_factors_long.weight and rope_factors_short.weight into config.rope and
/// config.rope_factors*.
Status read_rope_config(const GgufFile& file, RopeStyle style, ModelConfig& config);

/// The rotation of full-attention layers for a context of `context` tokens, its frequency factors chosen.
RopeParams rope_for_context(const ModelConfig& config, size_t context);

}  // namespace isthmus
