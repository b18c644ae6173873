// The float kernels, written once over Vec16. Include after one vec16_*.h; make_float_kernels() is the table.
// Everything is in an unnamed namespace and uses no library function: this is compiled with each set's flags.
#pragma once

#include "kernels/float_kernels.h"
#include "kernels/generic/float_math.h"

namespace isthmus {
namespace {

constexpr size_t kLanes = 16;
constexpr float kInfinity = __builtin_inff();

/// The last n < 16 values of a vector, the other lanes `fill`.
ISTHMUS_INLINE Vec16 load_tail(const float* p, size_t n, float fill) {
  alignas(64) float lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = i < n ? p[i] : fill;
  return Vec16::load(lanes);
}
ISTHMUS_INLINE void store_tail(Vec16 x, float* p, size_t n) {
  alignas(64) float lanes[kLanes];
  x.store(lanes);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}

/// out[i] = f(x[i]) for whole vectors, then the tail.
template <class F>
ISTHMUS_INLINE void map1(const float* x, size_t n, float* out, F f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(Vec16::load(x + i)).store(out + i);
  if (i < n) store_tail(f(load_tail(x + i, n - i, 0.0f)), out + i, n - i);
}
template <class F>
ISTHMUS_INLINE void map2(const float* a, const float* b, size_t n, float* out, F f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(Vec16::load(a + i), Vec16::load(b + i)).store(out + i);
  if (i < n) {
    store_tail(f(load_tail(a + i, n - i, 0.0f), load_tail(b + i, n - i, 0.0f)), out + i, n - i);
  }
}

/// Folds whole vectors, then the tail filled up with `fill`, into `state` by f(state, vector).
template <class S, class F>
ISTHMUS_INLINE S fold(const float* x, size_t n, float fill, S state, F f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) state = f(state, Vec16::load(x + i));
  if (i < n) state = f(state, load_tail(x + i, n - i, fill));
  return state;
}

void rms_norm(const float* x, const float* weight, size_t n, float eps, float* out) {
  const Double16 squares = fold(x, n, 0.0f, Double16::zero(), [](Double16 s, Vec16 v) {
    const Double16 wide = Double16::from(v);
    return s + wide * wide;
  });
  const double mean = reduce_add(squares) / static_cast<double>(n);
  const float s = static_cast<float>(1.0 / __builtin_sqrt(mean + static_cast<double>(eps)));
  const Vec16 scale = Vec16::set1(s);
  if (weight == nullptr) {
    map1(x, n, out, [=](Vec16 v) { return v * scale; });
  } else {
    map2(x, weight, n, out, [=](Vec16 v, Vec16 w) { return v * scale * w; });
  }
}

void add(const float* a, const float* b, size_t n, float* out) {
  map2(a, b, n, out, [](Vec16 x, Vec16 y) { return x + y; });
}
void mul(const float* a, const float* b, size_t n, float* out) {
  map2(a, b, n, out, [](Vec16 x, Vec16 y) { return x * y; });
}
void mul_scalar(const float* x, float s, size_t n, float* out) {
  const Vec16 factor = Vec16::set1(s);
  map1(x, n, out, [=](Vec16 v) { return v * factor; });
}
void gate_mul(Gate kind, const float* g, const float* u, float* y, size_t n) {
  switch (kind) {
    case Gate::kSilu:
      return map2(g, u, n, y, [](Vec16 a, Vec16 b) { return silu(a) * b; });
    case Gate::kGeluTanh:
      return map2(g, u, n, y, [](Vec16 a, Vec16 b) { return gelu_tanh(a) * b; });
  }
}

void exp_all(const float* x, size_t n, float* out) {
  map1(x, n, out, [](Vec16 v) { return exp(v); });
}
void silu_all(const float* x, size_t n, float* out) {
  map1(x, n, out, [](Vec16 v) { return silu(v); });
}
void gelu_tanh_all(const float* x, size_t n, float* out) {
  map1(x, n, out, [](Vec16 v) { return gelu_tanh(v); });
}
void tanh_all(const float* x, size_t n, float* out) {
  map1(x, n, out, [](Vec16 v) { return tanh(v); });
}
void softcap_all(const float* x, float cap, size_t n, float* out) {
  const Vec16 c = Vec16::set1(cap);
  map1(x, n, out, [=](Vec16 v) { return c * tanh(v / c); });
}

float max_all(const float* x, size_t n) {
  // max(v, m) gives m when v is NaN.
  const Vec16 m = fold(x, n, -kInfinity, Vec16::set1(-kInfinity), [](Vec16 s, Vec16 v) { return max(v, s); });
  return reduce_max(m);
}

/// Index of the first value at or after `begin` that `found` marks in its vector's mask; n when there is
/// none.
template <class F>
ISTHMUS_INLINE size_t find_first(const float* x, size_t begin, size_t n, F found) {
  size_t i = begin;
  for (; i + kLanes <= n; i += kLanes) {
    const uint32_t bits = found(Vec16::load(x + i)).bits();
    if (bits != 0) return i + static_cast<size_t>(__builtin_ctz(bits));
  }
  if (i < n) {
    const uint32_t bits = found(load_tail(x + i, n - i, 0.0f)).bits() & ((1u << (n - i)) - 1);
    if (bits != 0) return i + static_cast<size_t>(__builtin_ctz(bits));
  }
  return n;
}
size_t argmax(const float* x, size_t n) {
  const Vec16 largest = Vec16::set1(max_all(x, n));
  const size_t index = find_first(x, 0, n, [=](Vec16 v) { return equal(v, largest); });
  return index < n ? index : 0;
}
size_t find_greater(const float* x, size_t begin, size_t n, float threshold) {
  const Vec16 limit = Vec16::set1(threshold);
  return find_first(x, begin, n, [=](Vec16 v) { return greater(v, limit); });
}

double sum(const float* x, size_t n) {
  const auto plus = [](Double16 s, Vec16 v) { return s + Double16::from(v); };
  return reduce_add(fold(x, n, 0.0f, Double16::zero(), plus));
}
double sum_exp(const float* x, size_t n, float shift) {
  const Vec16 base = Vec16::set1(shift);
  const auto plus = [=](Double16 s, Vec16 v) { return s + Double16::from(exp(v - base)); };
  return reduce_add(fold(x, n, -kInfinity, Double16::zero(), plus));
}
double exp_shifted(const float* x, size_t n, float shift, float scale, float* out) {
  const Vec16 base = Vec16::set1(shift);
  const Vec16 factor = Vec16::set1(scale);
  map1(x, n, out, [=](Vec16 v) { return exp((v - base) * factor); });
  return sum(out, n);
}
void subtract(const float* x, float shift, size_t n, float* out) {
  const Vec16 base = Vec16::set1(shift);
  map1(x, n, out, [=](Vec16 v) { return v - base; });
}
float dot(const float* a, const float* b, size_t n) {
  Vec16 lanes = Vec16::zero();
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) lanes = fma(Vec16::load(a + i), Vec16::load(b + i), lanes);
  if (i < n) lanes = fma(load_tail(a + i, n - i, 0.0f), load_tail(b + i, n - i, 0.0f), lanes);
  return reduce_add(lanes);
}

/// a' = a c - b s, b' = b c + a s over n lanes.
ISTHMUS_INLINE void rotate_lanes(Vec16& a, Vec16& b, Vec16 c, Vec16 s) {
  const Vec16 turned = fnma(b, s, a * c);
  b = fma(a, s, b * c);
  a = turned;
}
void rotate_half(float* x, const float* c, const float* s, size_t dims) {
  const size_t half = dims / 2;
  size_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    Vec16 a = Vec16::load(x + i);
    Vec16 b = Vec16::load(x + half + i);
    rotate_lanes(a, b, Vec16::load(c + i), Vec16::load(s + i));
    a.store(x + i);
    b.store(x + half + i);
  }
  if (i < half) {
    const size_t n = half - i;
    Vec16 a = load_tail(x + i, n, 0.0f);
    Vec16 b = load_tail(x + half + i, n, 0.0f);
    rotate_lanes(a, b, load_tail(c + i, n, 0.0f), load_tail(s + i, n, 0.0f));
    store_tail(a, x + i, n);
    store_tail(b, x + half + i, n);
  }
}
/// Eight pairs side by side: even lanes a c - b s, odd lanes b c + a s.
ISTHMUS_INLINE Vec16 rotate_pairs(Vec16 x, const float* c, const float* s) {
  alignas(64) static constexpr float kSigns[kLanes] = {-1, 1, -1, 1, -1, 1, -1, 1,
                                                       -1, 1, -1, 1, -1, 1, -1, 1};
  const Vec16 sine = load_twice(s) * Vec16::load(kSigns);
  return fma(swap_pairs(x), sine, x * load_twice(c));
}
void rotate_interleaved(float* x, const float* c, const float* s, size_t dims) {
  size_t i = 0;
  for (; i + kLanes <= dims; i += kLanes) {
    rotate_pairs(Vec16::load(x + i), c + i / 2, s + i / 2).store(x + i);
  }
  if (i < dims) {
    const size_t n = dims - i;
    alignas(64) float c8[kLanes / 2] = {};
    alignas(64) float s8[kLanes / 2] = {};
    for (size_t j = 0; j < n / 2; ++j) {
      c8[j] = c[i / 2 + j];
      s8[j] = s[i / 2 + j];
    }
    store_tail(rotate_pairs(load_tail(x + i, n, 0.0f), c8, s8), x + i, n);
  }
}

/// Conversions in whole vectors; the tail goes through a copy.
template <class From, class To, class F>
ISTHMUS_INLINE void convert(const From* x, size_t n, To* out, F f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(x + i, out + i);
  if (i == n) return;
  From in[kLanes] = {};
  To result[kLanes];
  for (size_t j = 0; j < n - i; ++j) in[j] = x[i + j];
  f(in, result);
  for (size_t j = 0; j < n - i; ++j) out[i + j] = result[j];
}
void f32_to_f16_all(const float* x, size_t n, uint16_t* out) {
  convert(x, n, out, [](const float* p, uint16_t* o) { Vec16::load(p).store_f16(o); });
}
void f16_to_f32_all(const uint16_t* x, size_t n, float* out) {
  convert(x, n, out, [](const uint16_t* p, float* o) { Vec16::load_f16(p).store(o); });
}
void f32_to_bf16_all(const float* x, size_t n, uint16_t* out) {
  convert(x, n, out, [](const float* p, uint16_t* o) { Vec16::load(p).store_bf16(o); });
}
void bf16_to_f32_all(const uint16_t* x, size_t n, float* out) {
  convert(x, n, out, [](const uint16_t* p, float* o) { Vec16::load_bf16(p).store(o); });
}

constexpr FloatKernels make_float_kernels() {
  FloatKernels k{};
  k.rms_norm = rms_norm;
  k.add = add;
  k.mul = mul;
  k.mul_scalar = mul_scalar;
  k.subtract = subtract;
  k.gate_mul = gate_mul;
  k.exp = exp_all;
  k.silu = silu_all;
  k.gelu_tanh = gelu_tanh_all;
  k.tanh = tanh_all;
  k.softcap = softcap_all;
  k.max = max_all;
  k.argmax = argmax;
  k.find_greater = find_greater;
  k.sum = sum;
  k.sum_exp = sum_exp;
  k.exp_shifted = exp_shifted;
  k.dot = dot;
  k.rotate_half = rotate_half;
  k.rotate_interleaved = rotate_interleaved;
  k.f32_to_f16 = f32_to_f16_all;
  k.f16_to_f32 = f16_to_f32_all;
  k.f32_to_bf16 = f32_to_bf16_all;
  k.bf16_to_f32 = bf16_to_f32_all;
  return k;
}

}  // namespace
}  // namespace isthmus
