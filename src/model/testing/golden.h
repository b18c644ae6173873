// Golden files of tests/golden/tiny: logits that llama.cpp gave for small random models
// (tests/golden/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace isthmus::testing {

struct GoldenSequence {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> positions;         // which tokens have a row
  std::vector<std::vector<float>> logits;  // [positions][vocab]
  size_t context = 0;                      // of the reference run; 0 = not stated
};

struct Golden {
  std::string model;  // file name in ISTHMUS_TINY_MODELS
  std::vector<GoldenSequence> sequences;
  double peer_mean_kl = -1;  // of llama.cpp's own quantised run to these logits; -1 = not measured
};

Result<Golden> read_golden(const std::string& path);

/// KL(p || q) of two rows of logits.
double kl_divergence(const std::vector<float>& p_logits, const float* q_logits);

}  // namespace isthmus::testing
