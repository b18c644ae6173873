// Qwen3, dense (Yang et al. 2025): no biases; RMSNorm of each head of q and k before the rotation.
#include "model/family_common.h"

namespace isthmus {
namespace {

Status configure(const GgufFile& file, ModelConfig& config) {
  return read_rope_config(file, RopeStyle::kHalf, config);
}

Status bind_layer(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights) {
  ISTHMUS_RETURN_IF_ERROR(bind_attention(config, layer, binder, weights));
  ISTHMUS_RETURN_IF_ERROR(bind_head_norms(config, layer, binder, weights));
  return bind_gated_ffn(config, layer, binder, weights);
}

void run_layer(LayerRun& run) {
  run.norm_input(run.w().attn_norm);
  run.project_qkv();
  run.norm_heads();
  run.rotate_and_store();
  run.attend();
  run.add_attention_output();

  run.norm_input(run.w().ffn_norm);
  run.gated_ffn(Gate::kSilu);
  run.add_ffn_output();
}

}  // namespace

const Family& family_qwen3() {
  static const Family kFamily{"qwen3", configure, bind_layer, run_layer};
  return kFamily;
}

}  // namespace isthmus
