// Element-wise and reducing kernels on float32 vectors: norms, activations, exp, soft-max parts, conversions.
//
// One generic source over a 16-lane vector class is compiled once per instruction set; every set gives the
// same bits. Reductions use 16 virtual lanes (lane = index mod 16) and one fixed tree (i with i + 8, + 4, +
// 2, + 1). All functions are pure and thread-safe. Pointers need no alignment; `out` may equal an input (same
// start) but must not overlap one otherwise. n = 0 is allowed except where said. NaN and infinities never
// crash: they go where IEEE 754 sends them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

enum class Isa;  // kernels/isa.h, not included here: instruction set files must stay free of library code

/// The gate function of a gated feed-forward layer: y = act(gate) * up.
enum class Gate : uint8_t {
  kSilu,      // x / (1 + e^-x); Elfwing et al. 2017, arXiv 1702.03118
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); Hendrycks and Gimpel, arXiv 1606.08415
};

/// The kernels of one instruction set. Errors are in units in the last place (ULP) of the exact result, over
/// all binades, subnormal results included.
struct FloatKernels {
  /// out[i] = x[i] * s * weight[i], s = 1 / sqrt(mean(x^2) + eps); weight null means all ones. The sum of
  /// squares and s are float64. Zhang and Sennrich 2019, arXiv 1910.07467. n >= 1.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float* out);

  void (*add)(const float* a, const float* b, size_t n, float* out);
  void (*mul)(const float* a, const float* b, size_t n, float* out);
  void (*mul_scalar)(const float* x, float s, size_t n, float* out);
  /// y[i] = act(g[i]) * u[i].
  void (*gate_mul)(Gate kind, const float* g, const float* u, float* y, size_t n);

  void (*exp)(const float* x, size_t n, float* out);        // <= 1 ULP
  void (*silu)(const float* x, size_t n, float* out);       // <= 3 ULP
  void (*gelu_tanh)(const float* x, size_t n, float* out);  // <= 4 ULP
  void (*tanh)(const float* x, size_t n, float* out);       // <= 4 ULP
  /// out[i] = cap * tanh(x[i] / cap), cap > 0: logit soft-capping (Gemma 2, arXiv 2408.00118).
  void (*softcap)(const float* x, float cap, size_t n, float* out);

  /// Largest value; NaN elements are passed over; -infinity when n = 0 or all are NaN.
  float (*max)(const float* x, size_t n);
  /// Index of the largest value, the lowest index on ties; NaN elements are passed over; 0 when there is
  /// none.
  size_t (*argmax)(const float* x, size_t n);
  /// The first index in [begin, n) whose value is greater than the threshold; n when there is none.
  size_t (*find_greater)(const float* x, size_t begin, size_t n, float threshold);
  /// sum of x[i], 16 float64 lanes.
  double (*sum)(const float* x, size_t n);
  /// sum of exp(x[i] - shift): the exponentials in float32, the sum in 16 float64 lanes.
  double (*sum_exp)(const float* x, size_t n, float shift);
  /// out[i] = exp((x[i] - shift) * scale); returns the sum as sum_exp does.
  double (*exp_shifted)(const float* x, size_t n, float shift, float scale, float* out);
  /// out[i] = x[i] - shift: with shift = max + log(sum_exp) this is log soft-max.
  void (*subtract)(const float* x, float shift, size_t n, float* out);
  /// sum of a[i] * b[i]: 16 float32 lanes with fma.
  float (*dot)(const float* a, const float* b, size_t n);

  /// Rotates `dims` values in place, pairs (x[i], x[i + dims/2]), by the angles whose cosines and sines are
  /// c[dims/2], s[dims/2]: a' = a c - b s, b' = b c + a s.
  void (*rotate_half)(float* x, const float* c, const float* s, size_t dims);
  /// The same for pairs (x[2i], x[2i + 1]).
  void (*rotate_interleaved)(float* x, const float* c, const float* s, size_t dims);

  /// IEEE binary16 and bfloat16, round to nearest even; NaN stays NaN (quiet), overflow gives infinity.
  void (*f32_to_f16)(const float* x, size_t n, uint16_t* out);
  void (*f16_to_f32)(const uint16_t* x, size_t n, float* out);
  void (*f32_to_bf16)(const float* x, size_t n, uint16_t* out);
  void (*bf16_to_f32)(const uint16_t* x, size_t n, float* out);
};

/// The table of the active instruction set (isa.h; scalar when active_isa() reports an error).
const FloatKernels& float_kernels();
/// The table of one instruction set that available_isas() lists; scalar for one that this build does not
/// have.
const FloatKernels& float_kernels_for(Isa isa);

}  // namespace isthmus
