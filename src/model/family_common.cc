#include "model/family_common.h"

namespace isthmus {

std::string layer_prefix(size_t layer) { return "blk." + std::to_string(layer) + "."; }

Status bind_attention(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights) {
  const std::string p = layer_prefix(layer);
  const size_t d = config.d_model;
  ISTHMUS_RETURN_IF_ERROR(binder.vector(p + "attn_norm.weight", d, &weights.attn_norm));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix(p + "attn_q.weight", config.q_dim(), d, &weights.wq));
  ISTHMUS_RETURN_IF_ERROR(binder.optional_vector(p + "attn_q.bias", config.q_dim(), &weights.bq));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix(p + "attn_k.weight", config.kv_dim(), d, &weights.wk));
  ISTHMUS_RETURN_IF_ERROR(binder.optional_vector(p + "attn_k.bias", config.kv_dim(), &weights.bk));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix(p + "attn_v.weight", config.kv_dim(), d, &weights.wv));
  ISTHMUS_RETURN_IF_ERROR(binder.optional_vector(p + "attn_v.bias", config.kv_dim(), &weights.bv));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix(p + "attn_output.weight", d, config.q_dim(), &weights.wo));
  return binder.optional_vector(p + "attn_output.bias", d, &weights.bo);
}

Status bind_head_norms(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights) {
  const std::string p = layer_prefix(layer);
  ISTHMUS_RETURN_IF_ERROR(binder.vector(p + "attn_q_norm.weight", config.head_dim, &weights.q_norm));
  return binder.vector(p + "attn_k_norm.weight", config.head_dim, &weights.k_norm);
}

Status bind_gated_ffn(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights) {
  const std::string p = layer_prefix(layer);
  ISTHMUS_RETURN_IF_ERROR(binder.vector(p + "ffn_norm.weight", config.d_model, &weights.ffn_norm));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix(p + "ffn_gate.weight", config.d_ff, config.d_model, &weights.gate));
  ISTHMUS_RETURN_IF_ERROR(binder.matrix(p + "ffn_up.weight", config.d_ff, config.d_model, &weights.up));
  return binder.matrix(p + "ffn_down.weight", config.d_model, config.d_ff, &weights.down);
}

Status refuse_experts(const GgufFile& file, const ModelConfig& config) {
  const std::string key = config.architecture + ".expert_count";
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t experts, file.get_uint_or(key, 0));
  if (experts == 0) return ok_status();
  return unsupported(key + " is " + std::to_string(experts) + ": mixtures of experts are not supported");
}

}  // namespace isthmus
