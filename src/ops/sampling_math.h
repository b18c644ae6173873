// Arithmetic of sampling over a whole vocabulary (up to some 260 000 logits): partial top-k selection and
// soft-max. Pure functions over caller memory, thread-safe; results do not depend on the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isthmus {

/// A token with its logit.
struct TokenLogit {
  uint32_t id;
  float logit;
};

/// The `k` largest logits, descending; equal logits in ascending order of id. NaN counts as -infinity. k is
/// cut to the size of `logits`. `out` is overwritten (its capacity is reused).
void top_k_logits(std::span<const float> logits, size_t k, std::vector<TokenLogit>* out);

/// log(sum exp(logits)), float64. logits must not be empty; -infinity when all are -infinity.
double log_sum_exp(std::span<const float> logits);

}  // namespace isthmus
