// Gemma 3, text part (Gemma Team 2025): embeddings scaled by sqrt(d); five layers with a sliding window and
// RoPE base 10^4 for each layer with full attention and the model's base; RMSNorm of q and k heads; a second
// norm after each block. The stored norm weights already contain the "+ 1" of the published code.
#include <cmath>

#include "model/family_common.h"

namespace isthmus {
namespace {

constexpr uint64_t kPattern = 6;            // every sixth layer sees everything
constexpr double kLocalRopeBase = 10000.0;  // of the windowed layers
constexpr size_t kLayersOf27b = 62;         // the one size whose attention is scaled by d_model / n_heads

Status configure(const GgufFile& file, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.d_model));
  if (config.layers == kLayersOf27b) {
    config.attention_scale =
        1.0F / std::sqrt(static_cast<float>(config.d_model) / static_cast<float>(config.n_heads));
  }
  ISTHMUS_RETURN_IF_ERROR(read_rope_config(file, RopeStyle::kHalf, config));
  ISTHMUS_ASSIGN_OR_RETURN(const double local_base,
                           file.get_float_or("gemma3.rope.freq_base_swa", kLocalRopeBase));
  config.rope_local = config.rope;
  config.rope_local.scaling = RopeScaling::kNone;  // only the layers with full attention are stretched
  config.rope_local.factor = 1.0;
  config.rope_local.base = local_base;
  ISTHMUS_ASSIGN_OR_RETURN(config.sliding_window, file.get_uint_or("gemma3.attention.sliding_window", 0));
  config.layer_local.resize(config.layers);
  for (size_t i = 0; i < config.layers; ++i) config.layer_local[i] = i % kPattern != kPattern - 1;
  return ok_status();
}

Status bind_layer(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights) {
  ISTHMUS_RETURN_IF_ERROR(bind_attention(config, layer, binder, weights));
  ISTHMUS_RETURN_IF_ERROR(bind_head_norms(config, layer, binder, weights));
  const std::string prefix = layer_prefix(layer);
  ISTHMUS_RETURN_IF_ERROR(
      binder.vector(prefix + "post_attention_norm.weight", config.d_model, &weights.post_attn_norm));
  ISTHMUS_RETURN_IF_ERROR(
      binder.vector(prefix + "post_ffw_norm.weight", config.d_model, &weights.post_ffn_norm));
  return bind_gated_ffn(config, layer, binder, weights);
}

void run_layer(LayerRun& run) {
  run.norm_input(run.w().attn_norm);
  run.project_qkv();
  run.norm_heads();
  run.rotate_and_store();
  run.attend();
  run.add_attention_output_normed(run.w().post_attn_norm);

  run.norm_input(run.w().ffn_norm);
  run.gated_ffn(Gate::kGeluTanh);
  run.add_ffn_output_normed(run.w().post_ffn_norm);
}

}  // namespace

const Family& family_gemma3() {
  static const Family kFamily{"gemma3", configure, bind_layer, run_layer};
  return kFamily;
}

}  // namespace isthmus
