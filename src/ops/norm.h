// Normalisation of token rows: thin loops over FloatKernels for a range of rows, so that threads can share a
// batch. Any split of the rows gives the same bits. Pure, thread-safe for disjoint rows.
#pragma once

#include <cstddef>

namespace isthmus {

/// A batch of rows [row][n] with row strides in floats; x and out may be the same memory.
struct NormRows {
  const float* x;
  size_t ldx;
  float* out;
  size_t ldo;
  size_t n;
};

/// Root-mean-square norm (see FloatKernels::rms_norm) of rows [first, last). weight[n] may be null.
void rms_norm_rows(const NormRows& rows, size_t first, size_t last, const float* weight, float eps);
/// The same for each of `heads` parts of head_dim values of a row (n = heads * head_dim); weight[head_dim] is
/// shared by the heads: QK norm (qwen3, gemma3).
void rms_norm_heads(const NormRows& rows, size_t first, size_t last, const float* weight, float eps,
                    size_t head_dim);

}  // namespace isthmus
