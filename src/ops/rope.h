// Rotary position embedding (Su et al. 2021, arXiv 2104.09864) with the published context-extension scalings.
//
// A RopeTable holds the angles of one (base, scaling) setting; a model may have several (Gemma 3 has two
// bases). It is immutable after create(), so all members are thread-safe. Cosines and sines are computed in
// float64 and rounded to float32 once; a position's values do not depend on what was asked before. The table
// is small (two levels: 256 steps and multiples of 256 joined by one complex product), so long contexts cost
// no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace isthmus {

enum class RopeStyle : uint8_t {
  kInterleaved,  // pairs (2i, 2i + 1): llama-family tensors as GGUF stores them
  kHalf,         // pairs (i, i + dims/2): qwen2, qwen3, gemma3, phi3
};

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // position / factor; Chen et al. 2023, arXiv 2306.15595
  kYarn,    // Peng et al. 2023, arXiv 2309.00071
  kLlama3,  // wavelength bands; Llama 3.1 reference configuration ("rope_type": "llama3")
};

/// What a model file says about its rotation.
struct RopeParams {
  size_t dims = 0;  // rotated values per head, even; the rest of a head passes through
  double base = 10000.0;
  RopeStyle style = RopeStyle::kInterleaved;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;          // context extension, >= 1 (linear, yarn, llama3)
  size_t original_context = 0;  // trained context in tokens (yarn, llama3)
  /// Multiplies cosines and sines, so a score gets its square. Under YaRN it multiplies the paper's
  /// 0.1 ln(factor) + 1, as llama.cpp does with GGUF's rope.scaling.attn_factor.
  double attention_factor = 1.0;
  double yarn_ext_factor = 1.0;  // 1 = full YaRN mix, 0 = plain interpolation
  double yarn_beta_fast = 32.0;  // rotations within the trained context above which nothing is interpolated
  double yarn_beta_slow = 1.0;   // ... below which everything is
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  /// Divisors of the frequencies (GGUF rope_freqs / rope_factors_long / rope_factors_short), dims / 2 values
  /// or empty. Applied before `scaling`.
  std::span<const float> frequency_factors;
};

class RopeTable {
 public:
  /// kInvalidArgument when dims is odd or zero, base or a factor is not positive and finite, a needed context
  /// is missing, or the number of frequency factors is wrong. `max_position` only sizes the fast table:
  /// positions beyond it are right but slower.
  static Result<RopeTable> create(const RopeParams& params, size_t max_position);

  size_t dims() const { return dims_; }
  RopeStyle style() const { return style_; }
  /// Floats of one row of row(): dims() / 2 cosines, then dims() / 2 sines.
  size_t row_floats() const { return dims_; }
  /// Radians per position of pair i, after scaling.
  std::span<const double> frequencies() const { return frequencies_; }
  /// What cosines and sines are multiplied by.
  double magnitude() const { return magnitude_; }

  /// Writes the row of a position (negative ones rotate backwards) to out[row_floats()].
  void row(int32_t position, float* out) const;
  /// Rotates x[heads][head_dim] in place by a row; only the first dims() values of each head change.
  void rotate_by(const float* row, float* x, size_t heads, size_t head_dim) const;
  /// row() and rotate_by() in one call, for a single token.
  void rotate(int32_t position, float* x, size_t heads, size_t head_dim) const;
  /// cos and sin of offsets 0..31 as [dims/2][32] each: what attention needs to rotate a block of 32 keys.
  const float* block_cos() const { return block_cos_.data(); }
  const float* block_sin() const { return block_sin_.data(); }

 private:
  RopeTable() = default;
  void fill_tables(size_t max_position);

  size_t dims_ = 0;
  RopeStyle style_ = RopeStyle::kInterleaved;
  double magnitude_ = 1.0;
  std::vector<double> frequencies_;  // [dims/2]
  std::vector<double> low_;          // [256][2][dims/2]: cos, sin of position mod 256, times magnitude
  std::vector<double> high_;         // [ceil(max/256)][2][dims/2]: cos, sin of multiples of 256
  std::vector<float> block_cos_;     // [dims/2][32]
  std::vector<float> block_sin_;
};

}  // namespace isthmus
