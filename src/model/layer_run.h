// The operations of a layer, as a family's run_layer() calls them, over one batch of tokens.
//
// Vocabulary: T = tokens of the step, d = d_model. `x` is the residual stream [T][d]. Every thread of the
// region holds a LayerRun of its own over the shared StepState and calls the same operations in the same
// order; each operation ends with what it wrote visible to all threads. With few tokens the cheap work on x
// (norm, quantisation) is repeated by every thread rather than shared through a barrier; the bits are the
// same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/float_kernels.h"
#include "kv/query_record.h"
#include "kv/sequence.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/rope.h"
#include "threads/pool.h"

namespace isthmus {

/// Steps of at most this many tokens repeat cheap work in every thread.
inline constexpr size_t kFewTokens = 2;

/// What all threads share during one forward step. Buffers are float32, row-major, rows as long as named.
struct StepState {
  const ModelConfig* config = nullptr;
  const FloatKernels* kernels = nullptr;
  size_t tokens = 0;  // T
  Compute compute = Compute::kInt8;
  float* x = nullptr;               // [T][d]
  float* normed = nullptr;          // [T][d]
  float* qkv = nullptr;             // [T][qkv_dim]: q heads, k heads, v heads
  float* attn = nullptr;            // [T][q_dim]
  float* hidden = nullptr;          // [T][d_ff]
  float* branch = nullptr;          // [T][d]: output of a block before its post-norm
  std::byte* acts = nullptr;        // Activations::bytes(T, widest input)
  std::span<const uint32_t> slots;  // [T]: place in the token's sequence
  std::span<const uint32_t> owner;  // [T]: index of the token's sequence
  std::span<KvSequence* const> sequences;
  std::span<QueryRecord* const> records;              // [sequences], null where nobody asks
  KeyEncoding key_encoding = KeyEncoding::kAbsolute;  // of all sequences
  std::vector<QueryView> views_full;                  // [T]
  std::vector<QueryView> views_local;                 // [T], for layers with a sliding window
  std::vector<KvStreamRef> streams;                   // [layer][sequence][kv head]
  std::vector<AttentionSeq> attention;                // [layer][sequence]
  /// [T][dims]: cosines and sines of what each token's key is rotated by: its position or, with
  /// block-relative keys, its place in the block.
  std::vector<float> rope_rows;
  std::vector<float> rope_rows_local;  // the same for layers with a sliding window
  const RopeTable* rope = nullptr;
  const RopeTable* rope_local = nullptr;
  std::byte* attention_scratch = nullptr;
};

class LayerRun {
 public:
  /// `local_normed` [kFewTokens][d] and `local_acts` (Activations::bytes(kFewTokens, widest input)) belong to
  /// this thread.
  LayerRun(StepState& state, Worker& worker, float* local_normed, std::byte* local_acts)
      : s(state), worker_(worker), local_normed_(local_normed), local_acts_(local_acts) {}

  void begin_layer(size_t index, const LayerWeights& weights);

  // ---- the operations, in the words of the published models ----
  /// RMSNorm of x, kept as the input of the next matrix product.
  void norm_input(const float* weight);
  /// q, k, v = W input (+ bias).
  void project_qkv();
  /// RMSNorm of each head of q and k (Qwen3, Gemma 3).
  void norm_heads();
  /// Rotates q and k by their positions and stores k and v in the cache, in the cache's own encoding of keys
  /// (queries stay unrotated when attend() is to turn them).
  void rotate_and_store();
  /// Softmax attention of q over the cache, with the layer's window.
  void attend();
  /// x += Wo attention (+ bias).
  void add_attention_output();
  /// x += RMSNorm(Wo attention).
  void add_attention_output_normed(const float* weight);
  /// hidden = act(W_gate input) * (W_up input).
  void gated_ffn(Gate gate);
  /// x += W_down hidden.
  void add_ffn_output();
  /// x += RMSNorm(W_down hidden).
  void add_ffn_output_normed(const float* weight);

  size_t layer() const { return layer_; }
  const LayerWeights& w() const { return *weights_; }
  const ModelConfig& config() const { return *s.config; }

 private:
  // A thread's own copy of the input has no room for the strips of bfloat16.
  bool few() const { return s.tokens <= kFewTokens && s.compute != Compute::kBf16; }
  /// Makes rows of `src` [T][cols] the input of the products that follow.
  void set_input(const float* src, size_t cols);
  /// out [T][matrix.rows] = or += matrix input + bias, complete for all threads on return.
  void project(const PackedMatrix& matrix, const float* bias, float* out, bool accumulate);
  /// x += RMSNorm(branch).
  void add_normed_branch(const float* weight);
  void rotate_tokens(size_t first, size_t last, size_t first_head, size_t last_head);
  void store_tokens(size_t first, size_t last);
  void record_queries();

  StepState& s;
  Worker& worker_;
  float* local_normed_;
  std::byte* local_acts_;
  std::optional<Activations> input_;
  const LayerWeights* weights_ = nullptr;
  size_t layer_ = 0;
};

}  // namespace isthmus
