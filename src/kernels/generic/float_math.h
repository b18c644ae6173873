// exp, tanh and the gate functions on sixteen lanes. Include after one vec16_*.h. Everything is in an unnamed
// namespace and uses no library function: this is compiled with each instruction set's flags.
//
// Polynomials are minimax fits (Remez exchange) made for this file; the interval and the largest error before
// rounding stand beside each.
#pragma once

namespace isthmus {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2Hi = 0x1.62e4p-1f;  // 15 bits: n * kLn2Hi is exact for |n| < 512
constexpr float kLn2Lo = 0x1.7f7d1cp-20f;

/// e^x = p * 2^n, p in about [0.70, 1.42], for |x| < 350.
struct ExpParts {
  Vec16 p, n;
};
/// x = n ln 2 + r; returns e^r.
ISTHMUS_INLINE Vec16 exp_reduced(Vec16 r) {
  // (e^r - 1 - r) / r^2 on [-ln2/2, ln2/2], times r^2 off by <= 3.2e-9.
  Vec16 c = Vec16::set1(0x1.6db480p-10f);
  c = fma(c, r, Vec16::set1(0x1.123b92p-7f));
  c = fma(c, r, Vec16::set1(0x1.55545ep-5f));
  c = fma(c, r, Vec16::set1(0x1.55548ep-3f));
  c = fma(c, r, Vec16::set1(0.5f));
  c = fma(c, r, Vec16::set1(1.0f));
  return fma(c, r, Vec16::set1(1.0f));
}
ISTHMUS_INLINE Vec16 exp_remainder(Vec16 x, Vec16 n) {
  return fnma(n, Vec16::set1(kLn2Lo), fnma(n, Vec16::set1(kLn2Hi), x));
}
ISTHMUS_INLINE ExpParts exp_parts(Vec16 x) {
  const Vec16 n = round_even(x * Vec16::set1(kLog2E));
  return {exp_reduced(exp_remainder(x, n)), n};
}
/// The same for x = hi + lo, |lo| about one ULP of hi or less.
ISTHMUS_INLINE ExpParts exp_parts(Vec16 hi, Vec16 lo) {
  const Vec16 n = round_even(hi * Vec16::set1(kLog2E));
  return {exp_reduced(exp_remainder(hi, n) + lo), n};
}

/// e^x; subnormal results are rounded once, overflow is infinity, NaN stays.
ISTHMUS_INLINE Vec16 exp(Vec16 x) {
  // The constant first: then a NaN comes through min and max.
  const Vec16 clamped = min(Vec16::set1(89.0f), max(Vec16::set1(-104.0f), x));
  const ExpParts e = exp_parts(clamped);
  return scale2(e.p, e.n);
}
/// 2^x for x <= 0 as a soft-max weight, 1 for 0 exactly: 0 below -125, where subnormal results would come
/// near. Those are worth nothing as weights, and each costs an x86 processor a hundred cycles: a masked key
/// would come through here as -infinity.
ISTHMUS_INLINE Vec16 exp2_weight(Vec16 x) {
  const Vec16 least = Vec16::set1(-125.0f);
  const Vec16 clamped = max(least, x);
  const Vec16 n = round_even(clamped);
  const Vec16 r = clamped - n;  // exact
  // (2^r - 1) / r on [-1/2, 1/2], times r off by <= 2.2e-8 of the result.
  Vec16 c = Vec16::set1(0x1.470b4ap-13f);
  c = fma(c, r, Vec16::set1(0x1.5f7276p-10f));
  c = fma(c, r, Vec16::set1(0x1.3b270ep-7f));
  c = fma(c, r, Vec16::set1(0x1.c6ae72p-5f));
  c = fma(c, r, Vec16::set1(0x1.ebfbe2p-3f));
  c = fma(c, r, Vec16::set1(0x1.62e432p-1f));
  c = fma(c, r, Vec16::set1(1.0f));
  return select(greater(least, x), Vec16::zero(), add_exponent(c, n));
}

/// x / (1 + e^-z), z = hi + lo >= -150: e^-z may lie beyond float32 while the quotient does not, so then both
/// sides are carried 2^-96 times as large.
ISTHMUS_INLINE Vec16 over_one_plus_exp(Vec16 x, Vec16 hi, Vec16 lo) {
  const Vec16 one = Vec16::set1(1.0f);
  const ExpParts e = exp_parts(Vec16::zero() - hi, Vec16::zero() - lo);
  const Mask16 large = greater(e.n, Vec16::set1(64.0f));
  const Vec16 unit = select(large, Vec16::set1(0x1p-96f), one);
  const Vec16 shift = select(large, Vec16::set1(96.0f), Vec16::zero());
  return x / (unit + scale2(e.p, e.n - shift)) * unit;
}

/// x / (1 + e^-x).
ISTHMUS_INLINE Vec16 silu(Vec16 x) {
  const Vec16 from = max(Vec16::set1(-150.0f), x);  // below, the result is -0 anyway
  return over_one_plus_exp(from, min(Vec16::set1(104.0f), from), Vec16::zero());
}

/// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3). 2u reaches 150 in size, where
/// rounding it once would cost 10 ULP of the result, so it is carried as a sum of two floats.
ISTHMUS_INLINE Vec16 gelu_tanh(Vec16 x) {
  const Vec16 k_hi = Vec16::set1(0x1.988454p+0f);  // 2 sqrt(2/pi), in two parts
  const Vec16 k_lo = Vec16::set1(-0x1.857936p-25f);
  const Vec16 c_hi = Vec16::set1(0x1.2444f2p-4f);  // 0.044715 times that
  const Vec16 c_lo = Vec16::set1(0x1.49b16ap-29f);
  const Vec16 from = max(Vec16::set1(-12.0f), x);
  const Vec16 t = min(Vec16::set1(12.0f), from);

  const Vec16 t2 = t * t;
  const Vec16 t2_lo = fma(t, t, Vec16::zero() - t2);
  const Vec16 w = c_hi * t2;
  const Vec16 w_lo = fma(c_hi, t2_lo, fma(c_lo, t2, fma(c_hi, t2, Vec16::zero() - w)));
  const Vec16 sum = k_hi + w;  // both positive, either may be larger: Knuth's exact sum
  const Vec16 back = sum - k_hi;
  const Vec16 sum_lo = (k_hi - (sum - back)) + (w - back) + (k_lo + w_lo);
  const Vec16 z = t * sum;
  const Vec16 z_lo = fma(t, sum_lo, fma(t, sum, Vec16::zero() - z));
  return over_one_plus_exp(from, z, z_lo);
}

/// tanh(x): odd polynomial below 0.65, 1 - 2 / (e^2|x| + 1) above.
ISTHMUS_INLINE Vec16 tanh(Vec16 x) {
  const Vec16 a = abs(x);
  const Vec16 y = a * a;
  // (tanh(sqrt y) / sqrt y - 1) / y on [0, 0.65^2], times y off by <= 2.5e-10.
  Vec16 c = Vec16::set1(0x1.0e9eaep-9f);
  c = fma(c, y, Vec16::set1(-0x1.09285ap-7f));
  c = fma(c, y, Vec16::set1(0x1.62fb3fp-6f));
  c = fma(c, y, Vec16::set1(-0x1.b9e190p-5f));
  c = fma(c, y, Vec16::set1(0x1.111026p-3f));
  c = fma(c, y, Vec16::set1(-0x1.555552p-2f));
  const Vec16 small = fma(a * y, c, a);
  const Vec16 clamped = min(Vec16::set1(20.0f), a);
  const ExpParts e = exp_parts(clamped + clamped);
  const Vec16 one = Vec16::set1(1.0f);
  const Vec16 large = one - Vec16::set1(2.0f) / (scale2(e.p, e.n) + one);
  const Mask16 is_large = greater(a, Vec16::set1(0.65f));
  return copy_sign(select(is_large, large, small), x);
}

}  // namespace
}  // namespace isthmus
