// Blocks that several families share: the usual tensor names and how they bind.
#pragma once

#include <string>

#include "model/family.h"

namespace isthmus {

/// "blk.7."
std::string layer_prefix(size_t layer);

/// attn_norm, q, k, v (with biases where the file has them) and the output projection.
Status bind_attention(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights);
/// attn_q_norm and attn_k_norm.
Status bind_head_norms(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights);
/// ffn_norm, ffn_gate, ffn_up, ffn_down.
Status bind_gated_ffn(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights);

/// kUnsupported when the file describes a mixture of experts.
Status refuse_experts(const GgufFile& file, const ModelConfig& config);

}  // namespace isthmus
