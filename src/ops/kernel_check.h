// Proof at run time that every instruction set this machine offers computes what the scalar kernels compute,
// bit for bit.
//
// Random matrices of every weight type go through packing and products of several batch sizes, random vectors
// through the float kernels. Takes some hundred milliseconds. Thread-safe; deterministic.
#pragma once

#include <string>
#include <vector>

#include "kernels/isa.h"

namespace isthmus {

struct SelfTestResult {
  Isa isa = Isa::kScalar;
  size_t checks = 0;
  std::vector<std::string> failures;  // what differed, as "Q4_K, 3 tokens, 16-bit activations"
};

/// One result per entry of available_isas() other than scalar.
std::vector<SelfTestResult> self_test_kernels();

}  // namespace isthmus
