// Llama and its relatives with general.architecture "llama" (Touvron et al. 2023; Llama 3: rope_freqs.weight
// scales the frequencies; SmolLM2, Mistral, TinyLlama). q and k rows are stored so that rotation works on
// neighbouring pairs.
#include "model/family_common.h"

namespace isthmus {
namespace {

Status configure(const GgufFile& file, ModelConfig& config) {
  ISTHMUS_RETURN_IF_ERROR(refuse_experts(file, config));
  return read_rope_config(file, RopeStyle::kInterleaved, config);
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

const Family& family_llama() {
  static const Family kFamily{"llama", configure, bind_layer, run_layer};
  return kFamily;
}

}  // namespace isthmus
