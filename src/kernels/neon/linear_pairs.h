// Products of many tokens by the 8-bit matrix multiply extension (i8mm): one smmla takes 2 rows x 8 columns
// of weights and the same of two tokens to 2 x 2 sums, twice the work of an sdot. The unpacked panels and the
// records stay as they are: a zip of two neighbouring vectors has 8 columns of 2 rows, and 8 bytes each of
// two records are a pair of tokens.
#pragma once

#include "kernels/neon/linear_vec.h"

namespace isthmus {
namespace {

constexpr int kTokenPairs = static_cast<int>(kMaxTokens) / 2;

/// Sums of rows 0, 1 and rows 2, 3 of a part over one byte plane, [token pair]: row 0 of both tokens, row 1
/// of both.
struct PairSums {
  int32x4_t first[kTokenPairs];
  int32x4_t last[kTokenPairs];
};

/// 8 bytes of two records.
ISTHMUS_INLINE int8x16_t load_pair(const std::byte* at, size_t record_bytes) {
  const auto* bytes = reinterpret_cast<const int8_t*>(at);
  return vcombine_s8(vld1_s8(bytes), vld1_s8(bytes + record_bytes));
}

/// Adds the products of 8 columns of 4 rows with 8 bytes of each record of a plane.
ISTHMUS_INLINE void add_columns(int8x16_t first, int8x16_t last, const std::byte* plane, size_t record_bytes,
                                PairSums& sums) {
  unroll<kTokenPairs>([&](auto p) ISTHMUS_LAMBDA_INLINE {
    const int8x16_t pair = load_pair(plane + 2 * p * record_bytes, record_bytes);
    sums.first[p] = vmmlaq_s32(sums.first[p], first, pair);
    sums.last[p] = vmmlaq_s32(sums.last[p], last, pair);
  });
}

ISTHMUS_INLINE int32x4_t join_planes(int32x4_t low, int32x4_t high) {
  return vaddq_s32(low, vshlq_n_s32(high, 8));
}

/// The float steps of linear_dot.h's dot_block() for one token.
template <PanelLayout L, int G>
ISTHMUS_INLINE float32x4_t add_group(int32x4_t total, const GroupScale<NeonVec>& scale, const std::byte* side,
                                     float32x4_t sum) {
  constexpr int kSum = L.groups == 1 ? 0 : G + 1;
  const auto both = NeonVec::mul(scale.scale, NeonVec::broadcast(side + offsetof(RecordSide, scale)));
  sum = NeonVec::fma(vcvtq_f32_s32(total), both, sum);
  if constexpr (L.has_min) {
    const auto xs = NeonVec::broadcast(side + offsetof(RecordSide, dsum) + kSum * sizeof(float));
    sum = NeonVec::fma(scale.min, xs, sum);
  }
  return sum;
}

/// One unpacked block of one part for kMaxTokens tokens.
template <PanelLayout L, Compute C>
ISTHMUS_INLINE void dot_pairs_block(const std::byte* w, int part, const std::byte* x,
                                    float32x4_t (&sum)[kMaxTokens]) {
  using R = RecordOf<NeonVec, C>;
  constexpr int kSteps = 4 / L.groups;  // of 8 columns
  const std::byte* codes_at = w + L.scales_bytes();
  unroll<L.groups>([&](auto g) ISTHMUS_LAMBDA_INLINE {
    constexpr int kGroup = decltype(g)::kValue;
    PairSums low{};
    PairSums high{};
    unroll<kSteps>([&](auto i) ISTHMUS_LAMBDA_INLINE {
      constexpr int kStep = kGroup * kSteps + decltype(i)::kValue;
      const auto even =
          vreinterpretq_s32_s8(NeonVec::prepare<L, C>(load_codes<NeonVec, L, 2 * kStep>(codes_at, part)));
      const auto odd =
          vreinterpretq_s32_s8(NeonVec::prepare<L, C>(load_codes<NeonVec, L, 2 * kStep + 1>(codes_at, part)));
      const int8x16_t first = vreinterpretq_s8_s32(vzip1q_s32(even, odd));
      const int8x16_t last = vreinterpretq_s8_s32(vzip2q_s32(even, odd));
      add_columns(first, last, x + R::kLow + 8 * kStep, R::kSize, low);
      if constexpr (C == Compute::kInt16) add_columns(first, last, x + R::kHigh + 8 * kStep, R::kSize, high);
    });
    const auto scale = load_scale<NeonVec, L, kGroup>(w, 0, part, SuperHead<NeonVec>{});
    unroll<kTokenPairs>([&](auto p) ISTHMUS_LAMBDA_INLINE {
      const int32x4_t first = C == Compute::kInt16 ? join_planes(low.first[p], high.first[p]) : low.first[p];
      const int32x4_t last = C == Compute::kInt16 ? join_planes(low.last[p], high.last[p]) : low.last[p];
      const std::byte* side = x + 2 * p * R::kSize + R::kSide;
      sum[2 * p] = add_group<L, kGroup>(vuzp1q_s32(first, last), scale, side, sum[2 * p]);
      sum[2 * p + 1] = add_group<L, kGroup>(vuzp2q_s32(first, last), scale, side + R::kSize, sum[2 * p + 1]);
    });
  });
}

/// WideKernel of linear_kernels.h for one panel.
template <PanelLayout L, Compute C>
void dot_pairs(const std::byte* w, size_t /*panel_stride*/, size_t blocks, const std::byte* x,
               size_t x_stride, float* acc) {
  for (int part = 0; part < NeonVec::kParts; ++part) {
    float* acc_part = acc + part * NeonVec::kLanes;
    float32x4_t sum[kMaxTokens];
    unroll<static_cast<int>(kMaxTokens)>(
        [&](auto t) ISTHMUS_LAMBDA_INLINE { sum[t] = vld1q_f32(acc_part + t * kPanelRows); });
    const std::byte* block = w;
    const std::byte* record = x;
    for (size_t b = 0; b < blocks; ++b, block += L.unit_bytes(), record += x_stride) {
      dot_pairs_block<L, C>(block, part, record, sum);
    }
    unroll<static_cast<int>(kMaxTokens)>(
        [&](auto t) ISTHMUS_LAMBDA_INLINE { vst1q_f32(acc_part + t * kPanelRows, sum[t]); });
  }
}

template <size_t kFormat = 0>
void fill_pairs(LinearKernels& table) {
  constexpr PanelLayout kLayout = unpacked_layout(panel_layout(static_cast<PackFormat>(kFormat)));
  table.dot_wide[kFormat][static_cast<size_t>(Compute::kInt8)] = dot_pairs<kLayout, Compute::kInt8>;
  table.dot_wide[kFormat][static_cast<size_t>(Compute::kInt16)] = dot_pairs<kLayout, Compute::kInt16>;
  if constexpr (kFormat + 1 < kQuantFormats) fill_pairs<kFormat + 1>(table);
}

}  // namespace
}  // namespace isthmus
