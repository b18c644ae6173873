// The matrix kernels once for all instruction sets, over a policy class V that wraps one set's registers.
//
// A *part* is the slice of a panel that one register of floats covers: V::kLanes rows; the kernels do the
// V::kParts parts of a panel one after the other. V provides (see scalar/linear_vec.h for the plainest one):
//   Floats           kLanes floats          zero, load, store, broadcast(float const*), mul, fma, negate
//   Codes            kLanes rows x 4 codes  load, planes<…>, lookup
//   scale loads      half, bf16, floats, e8m0, bytes (unsigned, signed, low and high nibbles) to Floats
//   Accumulator<L,C> exact int32 sums of codes times record values: start, add<G>, total
// and the choice of record parts, kByteRecords(C) and kWordRecords(C).
//
// The order of float operations is the contract of ops/linear.h; nothing here may change it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/generic/inline.h"
#include "kernels/generic/linear_record.h"
#include "kernels/linear_kernels.h"

namespace isthmus {
namespace {

template <class V, Compute C>
using RecordOf = Record<C, V::byte_records(C), V::word_records(C)>;

/// The f16 d and -dmin of a super-block, for one part.
template <class V>
struct SuperHead {
  typename V::Floats d;
  typename V::Floats neg_dmin;
};

template <class V, PanelLayout L>
ISTHMUS_INLINE SuperHead<V> load_head(const std::byte* unit, int part) {
  SuperHead<V> head{V::zero(), V::zero()};
  if constexpr (L.is_super()) {
    head.d = V::load_half(unit + part * V::kLanes * 2);
    if constexpr (L.has_min) {
      head.neg_dmin = V::negate(V::load_half(unit + 2 * kPanelRows + part * V::kLanes * 2));
    }
  }
  return head;
}

template <class V>
struct GroupScale {
  typename V::Floats scale;
  typename V::Floats min;
};

/// Scale and minimum of group `G` of block `block` of a unit, for one part.
template <class V, PanelLayout L, int G>
ISTHMUS_INLINE GroupScale<V> load_scale(const std::byte* unit, int block, int part,
                                        const SuperHead<V>& head) {
  constexpr size_t kBlockScales = L.block_scale_bytes();
  constexpr size_t kRow = kPanelRows;
  GroupScale<V> out{V::zero(), V::zero()};
  const size_t lane = static_cast<size_t>(part) * static_cast<size_t>(V::kLanes);
  if constexpr (L.scale == ScaleKind::kHalf) {
    const std::byte* at = unit + static_cast<size_t>(block) * kRow * 2 + lane * 2;
    out.scale = V::load_half(at);
    if constexpr (L.has_min) out.min = V::load_half(at + static_cast<size_t>(L.unit_blocks) * kRow * 2);
  } else if constexpr (L.scale == ScaleKind::kE8m0) {
    out.scale = V::load_e8m0(unit + static_cast<size_t>(block) * kRow + lane);
  } else if constexpr (L.scale == ScaleKind::kFloat) {
    const std::byte* at = unit + G * kRow * 4 + lane * 4;
    out.scale = V::load(at);
    if constexpr (L.has_min) out.min = V::load(at + static_cast<size_t>(L.groups) * kRow * 4);
  } else {
    const std::byte* at = unit + L.head_bytes() + static_cast<size_t>(block) * kBlockScales + G * kRow + lane;
    if constexpr (L.scale == ScaleKind::kSuperSigned) {
      out.scale = V::mul(head.d, V::load_i8(at));
    } else if constexpr (L.scale == ScaleKind::kSuperUnsigned) {
      out.scale = V::mul(head.d, V::load_u8(at));
      if constexpr (L.has_min) out.min = V::mul(head.neg_dmin, V::load_u8(at + L.groups * kRow));
    } else {
      out.scale = V::mul(head.d, V::load_low_nibbles(at));
      out.min = V::mul(head.neg_dmin, V::load_high_nibbles(at));
    }
  }
  return out;
}

/// Codes of vector group `G` of a block (its 16 rows x columns 4 G .. 4 G + 3), for one part.
template <class V, PanelLayout L, int G>
ISTHMUS_INLINE typename V::Codes load_codes(const std::byte* block, int part) {
  const std::byte* base = block + part * V::kLanes * 4;
  auto codes = V::template low_plane<L.low_bits, G / L.low_bits>(base + (G % L.low_bits) * kVectorBytes);
  if constexpr (L.high_bits > 0) {
    const std::byte* high = base + (static_cast<size_t>(L.low_bits) + G % L.high_bits) * kVectorBytes;
    codes = V::template with_high_plane<L.low_bits, L.high_bits, G / L.high_bits>(codes, high);
  }
  if constexpr (L.table != CodeTable::kNone) codes = V::template lookup<L.table>(codes);
  return codes;
}

/// One block for N tokens and S parts of a panel from `first_part` on: the block sums of each scale group,
/// then the float steps.
template <class V, PanelLayout L, Compute C, int S, int N>
ISTHMUS_INLINE void dot_block(const std::byte* unit, int block, int first_part, const SuperHead<V> (&head)[S],
                              const std::byte* x, typename V::Floats (&sum)[S][N]) {
  using R = RecordOf<V, C>;
  constexpr int kGroupVectors = static_cast<int>(kVectorsPerBlock) / L.groups;
  const std::byte* codes_at = unit + L.scales_bytes() + static_cast<size_t>(block) * L.block_bytes();
  unroll<L.groups>([&](auto g) ISTHMUS_LAMBDA_INLINE {
    constexpr int kGroup = decltype(g)::kValue;
    constexpr int kSum = L.groups == 1 ? 0 : kGroup + 1;  // index into the record's sums
    typename V::template Accumulator<L, C> acc[S][N];
    unroll<S * N>([&](auto j) ISTHMUS_LAMBDA_INLINE {
      acc[j / N][j % N].start(x + j % N * R::kSize + R::kSide + offsetof(RecordSide, nsum) +
                              kSum * sizeof(int32_t));
    });
    unroll<kGroupVectors>([&](auto i) ISTHMUS_LAMBDA_INLINE {
      constexpr int kVector = kGroup * kGroupVectors + decltype(i)::kValue;
      decltype(V::template prepare<L, C>(typename V::Codes{})) codes[S];
      unroll<S>([&](auto s) ISTHMUS_LAMBDA_INLINE {
        codes[s] = V::template prepare<L, C>(load_codes<V, L, kVector>(codes_at, first_part + s));
      });
      unroll<S * N>([&](auto j) ISTHMUS_LAMBDA_INLINE {
        acc[j % S][j / S].template add<kVector, kGroupVectors>(codes[j % S], x + j / S * R::kSize);
      });
    });
    unroll<S>([&](auto s) ISTHMUS_LAMBDA_INLINE {
      const auto scale = load_scale<V, L, kGroup>(unit, block, first_part + s, head[s]);
      unroll<N>([&](auto t) ISTHMUS_LAMBDA_INLINE {
        const std::byte* side = x + t * R::kSize + R::kSide;
        const auto both = V::mul(scale.scale, V::broadcast(side + offsetof(RecordSide, scale)));
        sum[s][t] = V::fma(acc[s][t].total(), both, sum[s][t]);
        if constexpr (L.has_min) {
          const auto xs = V::broadcast(side + offsetof(RecordSide, dsum) + kSum * sizeof(float));
          sum[s][t] = V::fma(scale.min, xs, sum[s][t]);
        }
      });
    });
  });
}

/// Parts of a panel that dot_units() does at once for so many tokens.
template <class V>
constexpr int parts_at_once([[maybe_unused]] int tokens) {
  if constexpr (requires { V::parts_at_once(tokens); }) return V::parts_at_once(tokens);
  return 1;
}

template <size_t kBytes>
ISTHMUS_INLINE void prefetch_lines(const std::byte* at) {
  for (size_t i = 0; i < kBytes; i += 64) __builtin_prefetch(at + i);
}

/// DotKernel of linear_kernels.h.
template <class V, PanelLayout L, Compute C, int N>
void dot_units(const std::byte* w, size_t units, const std::byte* x, size_t x_stride, float* acc,
               size_t prefetch) {
  constexpr int S = parts_at_once<V>(N);
  static_assert(V::kParts % S == 0);
  for (int part = 0; part < V::kParts; part += S) {
    float* acc_part = acc + part * V::kLanes;
    typename V::Floats sum[S][N];
    unroll<S * N>([&](auto i) ISTHMUS_LAMBDA_INLINE {
      sum[i / N][i % N] = V::load(acc_part + i / N * V::kLanes + i % N * kPanelRows);
    });
    const std::byte* unit = w;
    const std::byte* record = x;
    for (size_t u = 0; u < units; ++u, unit += L.unit_bytes()) {
      if (prefetch != 0 && part == 0) prefetch_lines<L.unit_bytes()>(unit + prefetch);
      SuperHead<V> head[S];
      unroll<S>([&](auto s) ISTHMUS_LAMBDA_INLINE { head[s] = load_head<V, L>(unit, part + s); });
      for (int block = 0; block < L.unit_blocks; ++block, record += x_stride) {
        dot_block<V, L, C, S, N>(unit, block, part, head, record, sum);
      }
    }
    unroll<S * N>([&](auto i) ISTHMUS_LAMBDA_INLINE {
      V::store(acc_part + i / N * V::kLanes + i % N * kPanelRows, sum[i / N][i % N]);
    });
  }
}

/// dot_units() for N tokens, V::kTokensAtOnce at a time: more would not fit the set's registers.
template <class V, PanelLayout L, Compute C, int N>
void dot_units_in_parts(const std::byte* w, size_t units, const std::byte* x, size_t x_stride, float* acc,
                        size_t prefetch) {
  static_assert(N % V::kTokensAtOnce == 0);
  for (size_t t = 0; t < N; t += V::kTokensAtOnce) {
    dot_units<V, L, C, V::kTokensAtOnce>(w, units, x + t * RecordOf<V, C>::kSize, x_stride,
                                         acc + t * kPanelRows, t == 0 ? prefetch : 0);
  }
}

/// What dot_wide() holds in registers: all parts of V::kWidePanels panels, one slice after the other.
template <class V>
inline constexpr int kWideSlices = V::kWidePanels* V::kParts;

/// Where slice `i` of a wide block begins: its codes and scales lie `lane` rows into panel `panel`.
template <class V>
struct WideSlice {
  size_t panel;
  int part;
  explicit constexpr WideSlice(int i) : panel(static_cast<size_t>(i / V::kParts)), part(i % V::kParts) {}
};

/// One block of V::kWidePanels unpacked panels for N tokens; as dot_block(), in the order that loads each
/// register once.
template <class V, PanelLayout L, Compute C, int N>
ISTHMUS_INLINE void dot_wide_block(const std::byte* w, size_t panel_stride, const std::byte* x,
                                   typename V::Floats (&sum)[kWideSlices<V>][N]) {
  using R = RecordOf<V, C>;
  using Acc = typename V::template Accumulator<L, C>;
  constexpr int kSlices = kWideSlices<V>;
  constexpr int kGroupVectors = static_cast<int>(kVectorsPerBlock) / L.groups;
  unroll<L.groups>([&](auto g) ISTHMUS_LAMBDA_INLINE {
    constexpr int kGroup = decltype(g)::kValue;
    constexpr int kSum = L.groups == 1 ? 0 : kGroup + 1;
    Acc acc[kSlices][N];
    unroll<N>([&](auto t) ISTHMUS_LAMBDA_INLINE {
      const std::byte* side = x + t * R::kSize + R::kSide;
      const auto start = Acc::load_start(side + offsetof(RecordSide, nsum) + kSum * sizeof(int32_t));
      unroll<kSlices>([&](auto s) ISTHMUS_LAMBDA_INLINE { acc[s][t].start_at(start); });
    });
    unroll<kGroupVectors>([&](auto i) ISTHMUS_LAMBDA_INLINE {
      constexpr int kVector = kGroup * kGroupVectors + decltype(i)::kValue;
      decltype(V::template prepare<L, C>(typename V::Codes{})) codes[kSlices];
      unroll<kSlices>([&](auto s) ISTHMUS_LAMBDA_INLINE {
        constexpr WideSlice<V> kSlice(decltype(s)::kValue);
        const std::byte* at = w + kSlice.panel * panel_stride + L.scales_bytes();
        codes[s] = V::template prepare<L, C>(load_codes<V, L, kVector>(at, kSlice.part));
      });
      unroll<N>([&](auto t) ISTHMUS_LAMBDA_INLINE {
        const auto word = Acc::template load_word<kVector>(x + t * R::kSize);
        unroll<kSlices>([&](auto s) ISTHMUS_LAMBDA_INLINE {
          acc[s][t].template add_word<kVector, kGroupVectors>(codes[s], word);
        });
      });
    });
    unroll<kSlices>([&](auto s) ISTHMUS_LAMBDA_INLINE {
      constexpr WideSlice<V> kSlice(decltype(s)::kValue);
      const auto scale =
          load_scale<V, L, kGroup>(w + kSlice.panel * panel_stride, 0, kSlice.part, SuperHead<V>{});
      unroll<N>([&](auto t) ISTHMUS_LAMBDA_INLINE {
        const std::byte* side = x + t * R::kSize + R::kSide;
        const auto both = V::mul(scale.scale, V::broadcast(side + offsetof(RecordSide, scale)));
        sum[s][t] = V::fma(acc[s][t].total(), both, sum[s][t]);
        if constexpr (L.has_min) {
          const auto xs = V::broadcast(side + offsetof(RecordSide, dsum) + kSum * sizeof(float));
          sum[s][t] = V::fma(scale.min, xs, sum[s][t]);
        }
      });
    });
  });
}

/// WideKernel of linear_kernels.h. The columns go by chunks that stay in the first-level cache while the
/// tile's tokens pass over them.
template <class V, PanelLayout L, Compute C>
void dot_wide(const std::byte* w, size_t panel_stride, size_t blocks, const std::byte* x, size_t x_stride,
              float* acc) {
  constexpr int kSlices = kWideSlices<V>;
  constexpr int kTokens = V::wide_tokens(C);
  constexpr size_t kChunk = V::kWideChunk;
  constexpr size_t kPanelFloats = kMaxTokens * kPanelRows;
  const auto at = [](float* tile, int slice, int token) ISTHMUS_LAMBDA_INLINE {
    const WideSlice<V> place(slice);
    return tile + place.panel * kPanelFloats + place.part * V::kLanes + token * static_cast<int>(kPanelRows);
  };
  for (size_t first = 0; first < blocks; first += kChunk) {
    const size_t count = blocks - first < kChunk ? blocks - first : kChunk;
    for (size_t token = 0; token < kMaxTokens; token += kTokens) {
      float* tile = acc + token * kPanelRows;
      typename V::Floats sum[kSlices][kTokens];
      unroll<kSlices>([&](auto s) ISTHMUS_LAMBDA_INLINE {
        unroll<kTokens>([&](auto t) ISTHMUS_LAMBDA_INLINE { sum[s][t] = V::load(at(tile, s, t)); });
      });
      const std::byte* block = w + first * L.unit_bytes();
      const std::byte* record = x + first * x_stride + token * RecordOf<V, C>::kSize;
      for (size_t b = 0; b < count; ++b, block += L.unit_bytes(), record += x_stride) {
        dot_wide_block<V, L, C, kTokens>(block, panel_stride, record, sum);
      }
      unroll<kSlices>([&](auto s) ISTHMUS_LAMBDA_INLINE {
        unroll<kTokens>([&](auto t) ISTHMUS_LAMBDA_INLINE { V::store(at(tile, s, t), sum[s][t]); });
      });
    }
  }
}

/// UnpackKernel of linear_kernels.h.
template <class V, PanelLayout L>
void unpack_units(const std::byte* w, size_t units, std::byte* out) {
  constexpr PanelLayout kOut = unpacked_layout(L);
  for (size_t u = 0; u < units; ++u, w += L.unit_bytes()) {
    for (int part = 0; part < V::kParts; ++part) {
      const auto head = load_head<V, L>(w, part);
      for (int block = 0; block < L.unit_blocks; ++block) {
        std::byte* to = out + static_cast<size_t>(block) * kOut.unit_bytes();
        unroll<L.groups>([&](auto g) ISTHMUS_LAMBDA_INLINE {
          const auto scale = load_scale<V, L, decltype(g)::kValue>(w, block, part, head);
          std::byte* at = to + (static_cast<size_t>(g) * kPanelRows + part * V::kLanes) * 4;
          V::store(at, scale.scale);
          if constexpr (L.has_min) V::store(at + static_cast<size_t>(L.groups) * kPanelRows * 4, scale.min);
        });
        const std::byte* codes_at = w + L.scales_bytes() + static_cast<size_t>(block) * L.block_bytes();
        std::byte* codes_to = to + kOut.scales_bytes() + part * V::kLanes * 4;
        unroll<static_cast<int>(kVectorsPerBlock)>([&](auto v) ISTHMUS_LAMBDA_INLINE {
          V::store_codes(codes_to + v * kVectorBytes, load_codes<V, L, decltype(v)::kValue>(codes_at, part));
        });
      }
    }
    out += static_cast<size_t>(L.unit_blocks) * kOut.unit_bytes();
  }
}

/// StoreKernel of linear_kernels.h.
template <class V>
void store_tile(const float* acc, size_t tokens, float* y, size_t ldy, const float* bias, bool accumulate) {
  for (int part = 0; part < V::kParts; ++part) {
    const size_t lane = static_cast<size_t>(part) * static_cast<size_t>(V::kLanes);
    for (size_t t = 0; t < tokens; ++t) {
      float* to = y + t * ldy + lane;
      auto value = V::load(acc + t * kPanelRows + lane);
      if (bias != nullptr) value = V::add(value, V::load_unaligned(bias + lane));
      if (accumulate) value = V::add(V::load_unaligned(to), value);
      V::store_unaligned(to, value);
    }
  }
}

template <class V, PackFormat F>
ISTHMUS_INLINE typename V::Floats load_plain(const std::byte* w, size_t col, int part) {
  const size_t index = col * kPanelRows + static_cast<size_t>(part) * static_cast<size_t>(V::kLanes);
  if constexpr (F == PackFormat::kF32) {
    return V::load(w + index * 4);
  } else if constexpr (F == PackFormat::kF16) {
    return V::load_half(w + index * 2);
  } else {
    return V::load_bf16(w + index * 2);
  }
}

/// FloatDotKernel of linear_kernels.h.
template <class V, PackFormat F, int N>
void dot_plain(const std::byte* w, size_t cols, const float* x, size_t ldx, float* acc, size_t prefetch) {
  constexpr size_t kColBytes = kPanelRows * (F == PackFormat::kF32 ? 4 : 2);
  for (int part = 0; part < V::kParts; ++part) {
    float* acc_part = acc + part * V::kLanes;
    typename V::Floats sum[N];
    unroll<N>([&](auto t) ISTHMUS_LAMBDA_INLINE { sum[t] = V::load(acc_part + t * kPanelRows); });
    for (size_t k = 0; k < cols; ++k) {
      if (prefetch != 0 && part == 0) __builtin_prefetch(w + k * kColBytes + prefetch);
      const auto weights = load_plain<V, F>(w, k, part);
      unroll<N>([&](auto t) ISTHMUS_LAMBDA_INLINE {
        sum[t] = V::fma(weights, V::broadcast(x + t * ldx + k), sum[t]);
      });
    }
    unroll<N>([&](auto t) ISTHMUS_LAMBDA_INLINE { V::store(acc_part + t * kPanelRows, sum[t]); });
  }
}

}  // namespace
}  // namespace isthmus
