// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama's layer with biases on q, k and v and rotation of the two
// halves of a head.
#include "model/family_common.h"

namespace isthmus {
namespace {

Status configure(const GgufFile& file, ModelConfig& config) {
  return read_rope_config(file, RopeStyle::kHalf, config);
}

Status bind_layer(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights) {
  ISTHMUS_RETURN_IF_ERROR(bind_attention(config, layer, binder, weights));
  return bind_gated_ffn(config, layer, binder, weights);
}

void run_layer(LayerRun& run) {
  run.norm_input(run.w().attn_norm);
  run.project_qkv();
  run.rotate_and_store();
  run.attend();
  run.add_attention_output();

  run.norm_input(run.w().ffn_norm);
  run.gated_ffn(Gate::kSilu);
  run.add_ffn_output();
}

}  // namespace

const Family& family_qwen2() {
  static const Family kFamily{"qwen2", configure, bind_layer, run_layer};
  return kFamily;
}

}  // namespace isthmus
