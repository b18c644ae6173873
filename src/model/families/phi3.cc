// Phi-3 and Phi-3.5 mini (Abdin et al. 2024): q, k, v in one tensor, gate and up in one tensor; longrope
// factors for contexts longer than the original one.
#include "model/family_common.h"

namespace isthmus {
namespace {

Status configure(const GgufFile& file, ModelConfig& config) {
  return read_rope_config(file, RopeStyle::kHalf, config);
}

Status bind_layer(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights) {
  const std::string prefix = layer_prefix(layer);
  const size_t d = config.d_model;
  const size_t q = config.q_dim();
  const size_t kv = config.kv_dim();
  const std::string qkv = prefix + "attn_qkv.weight";
  ISTHMUS_RETURN_IF_ERROR(binder.vector(prefix + "attn_norm.weight", d, &weights.attn_norm));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix_rows(qkv, q + 2 * kv, 0, q, d, &weights.wq));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix_rows(qkv, q + 2 * kv, q, kv, d, &weights.wk));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix_rows(qkv, q + 2 * kv, q + kv, kv, d, &weights.wv));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix(prefix + "attn_output.weight", d, q, &weights.wo));
  ISTHMUS_RETURN_IF_ERROR(binder.vector(prefix + "ffn_norm.weight", d, &weights.ffn_norm));
  const std::string gate_up = prefix + "ffn_up.weight";
  const size_t ff = config.d_ff;
  ISTHMUS_RETURN_IF_ERROR(binder.matrix_rows(gate_up, 2 * ff, 0, ff, d, &weights.gate));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix_rows(gate_up, 2 * ff, ff, ff, d, &weights.up));
  return binder.matrix(prefix + "ffn_down.weight", d, ff, &weights.down);
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

const Family& family_phi3() {
  static const Family kFamily{"phi3", configure, bind_layer, run_layer};
  return kFamily;
}

}  // namespace isthmus
