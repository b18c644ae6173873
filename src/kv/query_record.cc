#include "kv/query_record.h"

#include <algorithm>

namespace isthmus {

QueryRecord::QueryRecord(const AttentionGeometry& geometry, size_t window, bool moments)
    : geometry_(&geometry), window_(window), moments_(moments), heads_(geometry.layers * geometry.n_heads) {
  for (size_t layer = 0; layer < geometry.layers; ++layer) {
    if (!geometry.pruned[layer]) continue;
    for (size_t h = 0; h < geometry.n_heads; ++h) {
      Head& head = heads_[layer * geometry.n_heads + h];
      head.recent.resize(window * geometry.head_dim);
      if (!moments) continue;
      head.sum.resize(geometry.head_dim);
      head.outer.resize(geometry.head_dim * geometry.head_dim);
    }
  }
}

uint64_t QueryRecord::bytes(const AttentionGeometry& geometry, size_t window, bool moments) {
  const auto layers = static_cast<uint64_t>(std::count(geometry.pruned.begin(), geometry.pruned.end(), true));
  const uint64_t dim = geometry.head_dim;
  const uint64_t per_head = window * dim + (moments ? dim + dim * dim : 0);
  return layers * geometry.n_heads * per_head * sizeof(float) +
         geometry.layers * geometry.n_heads * sizeof(Head);
}

void QueryRecord::observe(size_t layer, const float* q, size_t ld, int32_t first_position, size_t tokens,
                          size_t thread, size_t threads) {
  if (!geometry_->pruned[layer]) return;
  const size_t dim = geometry_->head_dim;
  std::vector<float> scratch(2 * dim);
  for (size_t h = thread; h < geometry_->n_heads; h += threads) {
    Head& head = heads_[layer * geometry_->n_heads + h];
    // After a step back the older queries at hand are those of another text.
    if (first_position != head.end) head.begin = first_position;
    for (size_t t = 0; t < tokens; ++t) {
      const float* row = q + t * ld + h * dim;
      const int32_t position = first_position + static_cast<int32_t>(t);
      if (t + window_ >= tokens && window_ > 0) {
        std::copy_n(row, dim, head.recent.data() + static_cast<size_t>(position) % window_ * dim);
      }
      if (moments_ && static_cast<size_t>(position) % kMomentStride == 0)
        add_moment(head, row, position, scratch);
    }
    head.end = first_position + static_cast<int32_t>(tokens);
  }
}

void QueryRecord::add_moment(Head& head, const float* q, int32_t position,
                             std::vector<float>& scratch) const {
  const size_t dim = geometry_->head_dim;
  float* row = scratch.data();
  float* x = row + dim;
  std::copy_n(q, dim, x);
  const RopeTable& rope = *geometry_->rope;
  rope.row(-position, row);
  rope.rotate_by(row, x, 1, dim);
  // Cosines and sines carry the magnitude, there and back.
  const auto undo = static_cast<float>(1.0 / (rope.magnitude() * rope.magnitude()));
  for (size_t i = 0; i < rope.dims(); ++i) x[i] *= undo;
  ++head.counted;
  for (size_t i = 0; i < dim; ++i) {
    const float xi = x[i];
    head.sum[i] += xi;
    float* out = head.outer.data() + i * dim;
    for (size_t j = 0; j < dim; ++j) out[j] += xi * x[j];
  }
}

size_t QueryRecord::recent(size_t layer) const {
  const Head& head = heads_[layer * geometry_->n_heads];
  return std::min(window_, static_cast<size_t>(head.end - head.begin));
}

const float* QueryRecord::query(size_t layer, size_t head, int32_t position) const {
  const Head& of = heads_[layer * geometry_->n_heads + head];
  return of.recent.data() + static_cast<size_t>(position) % window_ * geometry_->head_dim;
}

void QueryRecord::moments(size_t layer, size_t head, std::vector<float>& mean,
                          std::vector<float>& covariance) const {
  const size_t dim = geometry_->head_dim;
  const Head& of = heads_[layer * geometry_->n_heads + head];
  mean.assign(dim, 0.0f);
  covariance.assign(dim * dim, 0.0f);
  if (of.counted == 0 || !moments_) return;
  const float part = 1.0f / static_cast<float>(of.counted);
  for (size_t i = 0; i < dim; ++i) mean[i] = of.sum[i] * part;
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j)
      covariance[i * dim + j] = of.outer[i * dim + j] * part - mean[i] * mean[j];
  }
}

}  // namespace isthmus
