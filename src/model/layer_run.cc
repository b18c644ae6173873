#include "model/layer_run.h"

#include <algorithm>
#include <array>

#include "ops/norm.h"

namespace isthmus {
namespace {

/// Steps whose products are approximate need no float32 attention.
AttentionCompute attention_compute(Compute compute) {
  const bool approximate = compute == Compute::kInt8 || compute == Compute::kBf16;
  return approximate ? AttentionCompute::kInt16 : AttentionCompute::kF32;
}

}  // namespace

void LayerRun::begin_layer(size_t index, const LayerWeights& weights) {
  layer_ = index;
  weights_ = &weights;
}

void LayerRun::set_input(const float* src, size_t cols) {
  if (few()) {
    input_.emplace(src, cols, s.tokens, cols, s.compute, local_acts_);
    quantize_activations(*input_, 0, s.tokens);
    return;
  }
  input_.emplace(src, cols, s.tokens, cols, s.compute, s.acts);
  const auto [first, last] = worker_.range(s.tokens);
  quantize_activations(*input_, first, last);
  worker_.barrier();
}

void LayerRun::norm_input(const float* weight) {
  const size_t d = config().d_model;
  if (few()) {
    rms_norm_rows({s.x, d, local_normed_, d, d}, 0, s.tokens, weight, config().norm_eps);
    set_input(local_normed_, d);
    return;
  }
  // The rows that a thread normalises are the ones that it quantises: no barrier between the two.
  const auto [first, last] = worker_.range(s.tokens);
  rms_norm_rows({s.x, d, s.normed, d, d}, first, last, weight, config().norm_eps);
  set_input(s.normed, d);
}

void LayerRun::project(const PackedMatrix& matrix, const float* bias, float* out, bool accumulate) {
  const std::array tasks = {LinearTask{&matrix, out, matrix.rows, bias, accumulate}};
  linear(tasks, *input_, worker_);
  worker_.barrier();
}

void LayerRun::project_qkv() {
  const size_t ld = config().qkv_dim();
  float* q = s.qkv;
  float* k = q + config().q_dim();
  float* v = k + config().kv_dim();
  const std::array tasks = {LinearTask{&w().wq, q, ld, w().bq, false},
                            LinearTask{&w().wk, k, ld, w().bk, false},
                            LinearTask{&w().wv, v, ld, w().bv, false}};
  linear(tasks, *input_, worker_);
  worker_.barrier();
}

void LayerRun::norm_heads() {
  const size_t ld = config().qkv_dim();
  const auto [first, last] = worker_.range(s.tokens);
  rms_norm_heads({s.qkv, ld, s.qkv, ld, config().q_dim()}, first, last, w().q_norm, config().norm_eps,
                 config().head_dim);
  float* k = s.qkv + config().q_dim();
  rms_norm_heads({k, ld, k, ld, config().kv_dim()}, first, last, w().k_norm, config().norm_eps,
                 config().head_dim);
  worker_.barrier();
}

void LayerRun::rotate_tokens(size_t first, size_t last, size_t first_head, size_t last_head) {
  const bool local = config().is_local(layer_);
  const RopeTable& table = local ? *s.rope_local : *s.rope;
  const float* rows = (local ? s.rope_rows_local : s.rope_rows).data();
  const size_t head_dim = config().head_dim;
  for (size_t t = first; t < last; ++t) {
    float* heads = s.qkv + t * config().qkv_dim() + first_head * head_dim;
    table.rotate_by(rows + t * table.row_floats(), heads, last_head - first_head, head_dim);
  }
}

void LayerRun::store_tokens(size_t first, size_t last) {
  const size_t ld = config().qkv_dim();
  const size_t head_dim = config().head_dim;
  for (size_t t = first; t < last;) {
    // Most tokens of one sequence stand in neighbouring slots.
    size_t end = t + 1;
    while (end < last && s.owner[end] == s.owner[t] && s.slots[end] == s.slots[end - 1] + 1) ++end;
    KvSequence& sequence = *s.sequences[s.owner[t]];
    const float* k = s.qkv + t * ld + config().q_dim();
    for (size_t head = 0; head < config().n_kv_heads; ++head) {
      const float* k_head = k + head * head_dim;
      sequence.write_rows(layer_, head, s.slots[t], end - t, k_head, k_head + config().kv_dim(), ld);
    }
    t = end;
  }
}

void LayerRun::rotate_and_store() {
  const size_t last_head = config().n_heads + config().n_kv_heads;  // k heads follow the q heads
  const size_t first_head = s.key_encoding == KeyEncoding::kAbsolute ? 0 : config().n_heads;
  // Whole blocks per thread where there are enough tokens, so that two threads rarely share a block's cache
  // lines.
  const auto [first, last] =
      worker_.range(s.tokens, s.tokens >= kBlockKeys * worker_.count() ? kBlockKeys : 1);
  if (s.key_encoding != KeyEncoding::kUnrotated) rotate_tokens(first, last, first_head, last_head);
  store_tokens(first, last);
  worker_.barrier();
}

void LayerRun::record_queries() {
  for (size_t i = 0; i < s.records.size(); ++i) {
    if (s.records[i] == nullptr) continue;
    const AttentionSeq& seq = s.attention[layer_ * s.sequences.size() + i];
    s.records[i]->observe(layer_, s.qkv + seq.first_token * config().qkv_dim(), config().qkv_dim(),
                          seq.views.front().pos, seq.tokens, worker_.index(), worker_.count());
  }
}

void LayerRun::attend() {
  record_queries();
  const size_t n_seqs = s.sequences.size();
  const std::span<const AttentionSeq> seqs(s.attention.data() + layer_ * n_seqs, n_seqs);
  const RopeTable* rope = config().is_local(layer_) ? s.rope_local : s.rope;
  const AttentionArgs args{s.qkv,
                           config().qkv_dim(),
                           s.attn,
                           config().q_dim(),
                           config().n_heads,
                           config().n_kv_heads,
                           config().head_dim,
                           config().attention_scale,
                           config().attention_softcap,
                           seqs,
                           s.key_encoding == KeyEncoding::kAbsolute ? nullptr : rope,
                           nullptr,
                           attention_compute(s.compute)};
  attention(args, s.attention_scratch, worker_);
  worker_.barrier();
}

void LayerRun::add_attention_output() {
  set_input(s.attn, config().q_dim());
  project(w().wo, w().bo, s.x, true);
}

void LayerRun::add_attention_output_normed(const float* weight) {
  set_input(s.attn, config().q_dim());
  project(w().wo, w().bo, s.branch, false);
  add_normed_branch(weight);
}

void LayerRun::gated_ffn(Gate gate) {
  linear_gated(w().gate, w().up, gate, *input_, s.hidden, config().d_ff, worker_);
  worker_.barrier();
}

void LayerRun::add_ffn_output() {
  set_input(s.hidden, config().d_ff);
  project(w().down, nullptr, s.x, true);
}

void LayerRun::add_ffn_output_normed(const float* weight) {
  set_input(s.hidden, config().d_ff);
  project(w().down, nullptr, s.branch, false);
  add_normed_branch(weight);
}

void LayerRun::add_normed_branch(const float* weight) {
  const size_t d = config().d_model;
  const auto [first, last] = worker_.range(s.tokens);
  rms_norm_rows({s.branch, d, s.branch, d, d}, first, last, weight, config().norm_eps);
  for (size_t t = first; t < last; ++t) s.kernels->add(s.x + t * d, s.branch + t * d, d, s.x + t * d);
  worker_.barrier();
}

}  // namespace isthmus
