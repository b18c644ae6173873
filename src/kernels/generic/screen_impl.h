// The screen kernels (kernels/screen_kernels.h) once for all instruction sets, over the policy classes of
// generic/linear_dot.h. Internal linkage throughout, for the reason that kernels/CMakeLists.txt gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/generic/linear_dot.h"
#include "kernels/screen_kernels.h"

namespace isthmus {
namespace {

constexpr float kScreenOne = 1.0f;

template <class V, PanelLayout L>
using ScreenSum = typename V::template Accumulator<L, Compute::kInt16>;

/// Adds one block of each of the streams; the vector's words are loaded once for all of them.
template <class V, PanelLayout L>
ISTHMUS_INLINE void screen_block(const std::byte* const (&at)[kScreenStreams], size_t offset, int part,
                                 const std::byte* record, ScreenSum<V, L> (&acc)[kScreenStreams]) {
  unroll<static_cast<int>(kVectorsPerBlock)>([&](auto v) ISTHMUS_LAMBDA_INLINE {
    constexpr int kVector = decltype(v)::kValue;
    unroll<static_cast<int>(kScreenStreams)>([&](auto s) ISTHMUS_LAMBDA_INLINE {
      const auto codes = load_codes<V, L, kVector>(at[s] + offset, part);
      acc[s].template add<kVector, static_cast<int>(kVectorsPerBlock)>(
          V::template prepare<L, Compute::kInt16>(codes), record);
    });
  });
}

template <class V, PanelLayout L>
ISTHMUS_INLINE void screen_group(const std::byte* const (&panels)[kScreenStreams], size_t offset,
                                 size_t blocks, int part, const std::byte* records, int32_t nsum,
                                 size_t prefetch, typename V::Floats (&sum)[kScreenStreams]) {
  constexpr size_t kRecord = RecordOf<V, Compute::kInt16>::kSize;
  ScreenSum<V, L> acc[kScreenStreams];
  unroll<static_cast<int>(kScreenStreams)>([&](auto s) ISTHMUS_LAMBDA_INLINE { acc[s].start(&nsum); });
  for (size_t b = 0; b < blocks; ++b, offset += L.block_bytes(), records += kRecord) {
    if (prefetch != 0 && part == 0) {
      unroll<static_cast<int>(kScreenStreams)>([&](auto s) ISTHMUS_LAMBDA_INLINE {
        prefetch_lines<L.block_bytes()>(panels[s] + offset + prefetch);
      });
    }
    screen_block<V, L>(panels, offset, part, records, acc);
  }
  unroll<static_cast<int>(kScreenStreams)>([&](auto s) ISTHMUS_LAMBDA_INLINE { sum[s] = acc[s].total(); });
}

/// ScreenKernel.
template <class V>
void screen_panels(const std::byte* const panels[kScreenStreams], const ScreenVector& x, float* estimate,
                   float* bound, size_t prefetch) {
  constexpr size_t kRow = kPanelRows * sizeof(float);
  const std::byte* at[kScreenStreams];
  for (size_t s = 0; s < kScreenStreams; ++s) at[s] = panels[s];
  const size_t b_at = kScreenHeadBytes + x.a_blocks * kScreenA.block_bytes();
  const std::byte* b_records = x.records + x.a_blocks * RecordOf<V, Compute::kInt16>::kSize;
  for (int part = 0; part < V::kParts; ++part) {
    typename V::Floats a[kScreenStreams];
    typename V::Floats b[kScreenStreams];
    screen_group<V, kScreenA>(at, kScreenHeadBytes, x.a_blocks, part, x.records, x.nsum_a, prefetch, a);
    screen_group<V, kScreenB>(at, b_at, x.b_blocks, part, b_records, x.nsum_b, prefetch, b);
    const auto one = V::broadcast(&kScreenOne);
    for (size_t s = 0; s < kScreenStreams; ++s) {
      const size_t lane = static_cast<size_t>(part) * static_cast<size_t>(V::kLanes);
      const std::byte* head = at[s] + lane * sizeof(float);
      const auto scaled_a = V::mul(V::load(head), V::broadcast(&x.scale_a));
      const auto scaled_b = V::mul(V::load(head + kRow), V::broadcast(&x.scale_b));
      const auto sum_b = V::fma(b[s], one, V::broadcast(&x.half_b));
      const auto value = V::fma(a[s], scaled_a, V::mul(sum_b, scaled_b));
      const auto reach = V::fma(V::load(head + 2 * kRow), V::broadcast(&x.spread), V::broadcast(&x.slack));
      V::store(estimate + s * kPanelRows + lane, value);
      V::store(bound + s * kPanelRows + lane, V::fma(reach, one, value));
    }
  }
}

/// ScreenRecordKernel.
template <class V>
void screen_record(const int32_t* q, std::byte* out) {
  write_codes<RecordOf<V, Compute::kInt16>>(q, out);
}

/// ScreenRoundKernel.
inline void screen_round(const float* x, size_t cols, float* out) {
  for (size_t at = 0; at < cols; at += kBlockCols) {
    const size_t count = cols - at < kBlockCols ? cols - at : kBlockCols;
    float block[kBlockCols] = {};
    for (size_t i = 0; i < count; ++i) block[i] = x[at + i];
    int32_t q[kBlockCols];
    float inverse;
    const float scale = block_scale<Compute::kInt16>(block, &inverse);
    round_block(block, inverse, q);
    for (size_t i = 0; i < count; ++i) out[at + i] = scale * static_cast<float>(q[i]);
  }
}

template <class V>
constexpr ScreenKernels screen_table() {
  return {RecordOf<V, Compute::kInt16>::kSize, screen_record<V>, screen_round, screen_panels<V>};
}

}  // namespace
}  // namespace isthmus
