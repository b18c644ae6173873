// The fastest loops of multiply-adds that a set has, for PeakKernel: what kernels are held against. Enough
// independent chains to hide the latency of an instruction; the codes change by the round so that no product
// can be done once.
#pragma once

#include "kernels/generic/linear_dot.h"

namespace isthmus {
namespace {

/// The results have to go somewhere, or the compiler drops the loop.
template <class Floats>
ISTHMUS_INLINE void keep(const Floats& value) {
  __asm__ volatile("" ::"m"(value));
}

template <class V, Compute C>
uint64_t peak_integer(size_t rounds) {
  using R = RecordOf<V, C>;
  constexpr PanelLayout kLayout = unpacked_layout(panel_layout(PackFormat::kQ4_0));
  constexpr int kVectors = static_cast<int>(kVectorsPerBlock);
  constexpr int kChains = C == Compute::kInt16 ? 6 : 12;
  alignas(64) std::byte codes_at[2 * kVectorBytes] = {};
  alignas(64) std::byte record[R::kSize] = {};
  typename V::template Accumulator<kLayout, C> sums[kChains];
  unroll<kChains>(
      [&](auto i) ISTHMUS_LAMBDA_INLINE { sums[i].start(record + R::kSide + offsetof(RecordSide, nsum)); });
  for (size_t round = 0; round < rounds; ++round) {
    const std::byte* at = codes_at + (round & 1) * kVectorBytes;
    auto codes = V::template prepare<kLayout, C>(V::template low_plane<8, 0>(at));
    unroll<kVectors>([&](auto v) ISTHMUS_LAMBDA_INLINE {
      unroll<kChains>([&](auto i) ISTHMUS_LAMBDA_INLINE {
        if constexpr (requires { V::forget(codes); }) V::forget(codes);
        sums[i].template add<decltype(v)::kValue, kVectors>(codes, record);
      });
    });
  }
  unroll<kChains>([&](auto i) ISTHMUS_LAMBDA_INLINE { keep(sums[i].total()); });
  return uint64_t{rounds} * kVectors * kChains * V::kLanes * 4;
}

template <class V>
uint64_t peak_float(size_t rounds) {
  constexpr int kChains = 12;
  constexpr int kSteps = 8;
  alignas(64) float values[kPanelRows] = {};
  typename V::Floats sums[kChains];
  unroll<kChains>([&](auto i) ISTHMUS_LAMBDA_INLINE { sums[i] = V::zero(); });
  const auto factor = V::load(values);
  for (size_t round = 0; round < rounds; ++round) {
    unroll<kSteps>([&](auto) ISTHMUS_LAMBDA_INLINE {
      unroll<kChains>([&](auto i) ISTHMUS_LAMBDA_INLINE { sums[i] = V::fma(factor, factor, sums[i]); });
    });
  }
  unroll<kChains>([&](auto i) ISTHMUS_LAMBDA_INLINE { keep(sums[i]); });
  return uint64_t{rounds} * kSteps * kChains * V::kLanes;
}

}  // namespace
}  // namespace isthmus
