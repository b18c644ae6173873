// What the forward pass lets eviction policies see of a text's queries: the newest ones as they were asked,
// and the mean and covariance of all of them before their rotation.
//
// A record belongs to one sequence whose keys are rotated by absolute positions, and is filled while that
// sequence's tokens are computed, in order; copying it goes with forking the sequence. observe() may be
// called from several threads for different threads' shares of one layer; everything else is for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/rope.h"

namespace isthmus {

/// The sizes that records, scores and budgets need of a model.
struct AttentionGeometry {
  size_t layers = 0;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  float scale = 1.0f;        // of q k^T
  float softcap = 0.0f;      // 0 = off
  std::vector<bool> pruned;  // [layers]: layers whose keys may go; those with a sliding window are left alone
  const RopeTable* rope = nullptr;  // of those layers

  size_t group() const { return n_heads / n_kv_heads; }
};

class QueryRecord {
 public:
  /// Every kMomentStride-th query counts for mean and covariance.
  static constexpr size_t kMomentStride = 4;

  /// Keeps the newest `window` queries of every head and, with `moments`, the mean and covariance. `geometry`
  /// outlives the record.
  QueryRecord(const AttentionGeometry& geometry, size_t window, bool moments);

  /// Bytes that a record takes.
  static uint64_t bytes(const AttentionGeometry& geometry, size_t window, bool moments);

  /// Takes the rotated queries q[tokens][n_heads * head_dim] (row stride ld) of tokens at positions
  /// first_position, first_position + 1, … of one layer. This thread takes the heads h with h % threads ==
  /// thread.
  void observe(size_t layer, const float* q, size_t ld, int32_t first_position, size_t tokens, size_t thread,
               size_t threads);

  size_t window() const { return window_; }
  bool has_moments() const { return moments_; }
  /// Queries of a layer that are at hand: the newest ones, at most window().
  size_t recent(size_t layer) const;
  /// Position after the newest query of a layer.
  int32_t end(size_t layer) const { return heads_[layer * geometry_->n_heads].end; }
  /// The rotated query [head_dim] of a head at a position among the recent ones.
  const float* query(size_t layer, size_t head, int32_t position) const;
  /// Mean [head_dim] and covariance [head_dim][head_dim] of the unrotated queries of a head; zeros when none
  /// counted.
  void moments(size_t layer, size_t head, std::vector<float>& mean, std::vector<float>& covariance) const;

 private:
  struct Head {
    int32_t begin = 0;          // first position seen
    int32_t end = 0;            // position after the newest
    size_t counted = 0;         // queries in the sums
    std::vector<float> recent;  // [window][head_dim], position p at p % window
    std::vector<float> sum;     // [head_dim]
    std::vector<float> outer;   // [head_dim][head_dim]
  };
  void add_moment(Head& head, const float* q, int32_t position, std::vector<float>& scratch) const;

  const AttentionGeometry* geometry_;
  size_t window_;
  bool moments_;
  std::vector<Head> heads_;  // [layers][n_heads]
};

}  // namespace isthmus
