// The attention kernels of KIVI parts, written once over Vec16 and the dot products of quads_*.h. Part of
// attention_impl.h, which includes it; nothing else does. The layout is KvType's.
//
// A K and a V part are made of the same cells: 32 *elements* (dimensions of keys, or slots of values) with a
// scale and a minimum each, times the *lanes* (slots, or dimensions) that share them. Products are of codes
// with 16-bit whole numbers that have the scales in them; the integer sums are exact whatever their order.
#pragma once

namespace isthmus {
namespace {

constexpr size_t kCellElements = 32;
/// Quads of elements whose codes share a byte, and the highest code.
template <int Bits>
constexpr size_t kQuadsPerByte = 8 / Bits;
template <int Bits>
constexpr float kMostCode = static_cast<float>((1 << Bits) - 1);
/// Cells whose products with 8-bit codes fit an int32 sum.
constexpr size_t kSpanCells = 8;
constexpr size_t kMostCells = kMaxHeadDim / kCellElements;

/// Scales, then minima, of a cell's elements.
ISTHMUS_INLINE const uint16_t* cell_scales(const uint8_t* cell, int bits) {
  return reinterpret_cast<const uint16_t*>(cell + kivi_code_bytes(bits));
}

/// Calls f(Tag<1>) to f(Tag<N>).
template <size_t N, class F>
ISTHMUS_INLINE void for_tags(F f) {
  if constexpr (N > 1) for_tags<N - 1>(f);
  f(Tag<N>{});
}

/// Rows of queries as whole numbers that have one block's scales in them.
template <size_t Rows>
struct KiviQueries {
  alignas(kLine) int32_t words[Rows][kMostCells * kQ8Words];
  int32_t start[Rows][kMostCells / kSpanCells];
  float scale[Rows];
  float bias[Rows];  // sum of q[d] * minimum[d]
};

/// q[n] to 32 floats, zero beyond n.
ISTHMUS_INLINE void load_cell(const float* q, size_t n, Vec16& low, Vec16& high) {
  if (n >= kCellElements) {
    low = Vec16::load(q);
    high = Vec16::load(q + 16);
    return;
  }
  alignas(kLine) float x[kCellElements] = {};
  for (size_t i = 0; i < n; ++i) x[i] = q[i];
  low = Vec16::load(x);
  high = Vec16::load(x + 16);
}

/// One row: x[d] = q[d] * scale[d] in units of max|x| / 32512.
template <int Bits, size_t Rows>
void kivi_query(const uint8_t* k, const float* q, size_t head_dim, size_t row, KiviQueries<Rows>& out) {
  constexpr size_t kCellBytes = kivi_cell_bytes(Bits);
  const size_t cells = kivi_cells(head_dim);
  alignas(kLine) float x[kMaxHeadDim];
  Vec16 top = Vec16::zero();
  Vec16 bias = Vec16::zero();
  for (size_t c = 0; c < cells; ++c) {
    const uint16_t* scales = cell_scales(k + c * kCellBytes, Bits);
    Vec16 low, high;
    load_cell(q + c * kCellElements, head_dim - c * kCellElements, low, high);
    bias = fma(low, Vec16::load_f16(scales + 32), bias);
    bias = fma(high, Vec16::load_f16(scales + 48), bias);
    low = low * Vec16::load_f16(scales);
    high = high * Vec16::load_f16(scales + 16);
    top = max(top, max(abs(low), abs(high)));
    low.store(x + c * kCellElements);
    high.store(x + c * kCellElements + 16);
  }
  const float most = reduce_max(top);
  const Vec16 inverse = Vec16::set1(kQ8Most / (kLeast > most ? kLeast : most));
  int32_t sum = 0;
  for (size_t c = 0; c < cells; ++c) {
    const Vec16 low = Vec16::load(x + c * kCellElements) * inverse;
    const Vec16 high = Vec16::load(x + c * kCellElements + 16) * inverse;
    pack_signed(low, high, out.words[row] + c * kQ8Words);
    if constexpr (Bits == 8 && kQuadStart != 0) {  // exact: whole numbers below 2^24
      if (c % kSpanCells == 0) sum = 0;
      sum += static_cast<int32_t>(reduce_add(round_even(low) + round_even(high)));
      out.start[row][c / kSpanCells] = kQuadStart * sum;
    }
  }
  out.bias[row] = reduce_add(bias);
  // The bias is not finite where a query or a minimum is not: whole numbers would not show it.
  out.scale[row] = most / kQ8Most + out.bias[row] * 0.0f;
}

struct KiviScoreCall {
  const uint8_t* k;
  size_t cells;
  float* out;
  const Prefetch* next;
};

/// Adds the products of one cell. `words` of the first row; the next row's are `row_words` on.
template <int Bits, size_t Rows, size_t Vecs>
ISTHMUS_INLINE void add_kivi_cell(QuadSum (&sum)[Rows][Vecs], const uint8_t* codes, const int32_t* words,
                                  size_t row_words, LinePrefetch& ahead) {
#pragma GCC unroll 8
  for (size_t chunk = 0; chunk < Bits; ++chunk) {
    ahead.lines(2);
    for_tags<kQuadsPerByte<Bits>>([&](auto tag) {
      constexpr size_t kPart = decltype(tag)::kValue - 1;
      KeyQuads key[Vecs];
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) {
        key[v] = KeyQuads::template unpack<Bits, Bits * kPart>(codes + chunk * 4 * kBlockKeys + 64 * v);
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < Rows; ++r) {
        const QuadWord word = QuadWord::load(words + r * row_words, chunk * kQuadsPerByte<Bits> + kPart);
#pragma GCC unroll 4
        for (size_t v = 0; v < Vecs; ++v) sum[r][v].add(key[v], word);
      }
    });
  }
  ahead.lines(2);
}

template <int Bits, size_t Rows, size_t Vecs>
ISTHMUS_INLINE void score_kivi_tile(const KiviScoreCall& call, const KiviQueries<Rows>& queries,
                                    size_t first_vec) {
  Vec16 acc[Rows][Vecs];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) acc[r][v] = Vec16::zero();
  }
  LinePrefetch ahead(first_vec == 0 ? call.next : nullptr);
  for (size_t span = 0; span * kSpanCells < call.cells; ++span) {
    QuadSum sum[Rows][Vecs];
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) {
        sum[r][v].start(Bits == 8 && kQuadStart != 0 ? queries.start[r][span] : 0);
      }
    }
    const size_t end = at_most((span + 1) * kSpanCells, call.cells);
    for (size_t c = span * kSpanCells; c < end; ++c) {
      add_kivi_cell<Bits>(sum, call.k + c * kivi_cell_bytes(Bits) + 64 * first_vec,
                          queries.words[0] + c * kQ8Words, kMostCells * kQ8Words, ahead);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) acc[r][v] = acc[r][v] + sum[r][v].total();
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
    const Vec16 scale = Vec16::set1(queries.scale[r]);
    const Vec16 bias = Vec16::set1(queries.bias[r]);
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) {
      fma(acc[r][v], scale, bias).store(call.out + r * kScoreStride + 16 * (first_vec + v));
    }
  }
}

template <int Bits>
void scores_kivi(const void* k, const float* q, size_t ldq, size_t rows, size_t head_dim, float* out,
                 const Prefetch* next) {
  const auto* part = static_cast<const uint8_t*>(k);
  for (size_t r = 0; r < rows; r += kQuadRows) {
    const KiviScoreCall call = {part, kivi_cells(head_dim), out + r * kScoreStride, next};
    with_rows<kQuadRows>(rows - r, [&](auto tag) {
      constexpr size_t kRows = decltype(tag)::kValue;
      KiviQueries<kRows> queries;
      for (size_t i = 0; i < kRows; ++i) {
        kivi_query<Bits>(part, q + (r + i) * ldq, head_dim, i, queries);
      }
      for (size_t v = 0; v < kVecsPerBlock; v += kQuadVecs) {
        score_kivi_tile<Bits, kRows, kQuadVecs>(call, queries, v);
      }
    });
    next = nullptr;
  }
}

/// One cell of values and the weights of some rows.
struct KiviSumCall {
  const uint8_t* codes;
  size_t dims;     // of the cell
  const float* p;  // [rows], kScoreStride apart
  float* acc;      // [rows], `stride` apart
  size_t stride;
};

template <int Bits, size_t Rows, size_t Vecs>
ISTHMUS_INLINE void sum_kivi_tile(const KiviSumCall& call, size_t first,
                                  const int32_t (&words)[Rows][kQ8Words], const float (&unit)[Rows],
                                  const float (&bias)[Rows], LinePrefetch& ahead) {
  QuadSum sum[Rows][Vecs];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) sum[r][v].start(0);
  }
#pragma GCC unroll 8
  for (size_t chunk = 0; chunk < Bits; ++chunk) {
    ahead.lines(Vecs);
    for_tags<kQuadsPerByte<Bits>>([&](auto tag) {
      constexpr size_t kPart = decltype(tag)::kValue - 1;
      ValueQuads value[Vecs];
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) {
        value[v] = ValueQuads::template unpack<Bits, Bits * kPart>(call.codes +
                                                                   (chunk * call.dims + first + 16 * v) * 4);
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < Rows; ++r) {
        const QuadWord word = QuadWord::load(words[r], chunk * kQuadsPerByte<Bits> + kPart);
#pragma GCC unroll 4
        for (size_t v = 0; v < Vecs; ++v) sum[r][v].add(value[v], word);
      }
    });
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
    float* acc = call.acc + r * call.stride + first;
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) {
      const Vec16 start = Vec16::load(acc + 16 * v) + Vec16::set1(bias[r]);
      fma(sum[r][v].total(), Vec16::set1(unit[r]), start).store(acc + 16 * v);
    }
  }
}

template <int Bits, size_t Rows>
ISTHMUS_INLINE void sum_kivi_cell(const KiviSumCall& call, const SlotScales& scales, const SlotScales& minima,
                                  LinePrefetch& ahead) {
  alignas(kLine) int32_t words[Rows][kQ8Words];
  float unit[Rows];
  float bias[Rows];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
    const Vec16 p_low = Vec16::load(call.p + r * kScoreStride);
    const Vec16 p_high = Vec16::load(call.p + r * kScoreStride + 16);
    const Vec16 low = p_low * scales.low;
    const Vec16 high = p_high * scales.high;
    const float most = reduce_max(max(low, high));
    const Vec16 inverse = Vec16::set1(kQ8Most / (kLeast > most ? kLeast : most));
    pack_weights(low * inverse, high * inverse, words[r]);
    unit[r] = most / kQ8Most + scales.poison;
    bias[r] = reduce_add(fma(p_low, minima.low, p_high * minima.high)) + minima.poison;
  }
  size_t d = 0;
  for (; d + 16 * kQuadVecs <= call.dims; d += 16 * kQuadVecs) {
    sum_kivi_tile<Bits, Rows, kQuadVecs>(call, d, words, unit, bias, ahead);
  }
  if constexpr (kQuadVecs > 1) {
    if (d < call.dims) sum_kivi_tile<Bits, Rows, 1>(call, d, words, unit, bias, ahead);
  }
  ahead.lines(2);
}

template <int Bits>
void weighted_sum_kivi(const void* v, const float* p, size_t rows, size_t keys, size_t dim, float* acc,
                       const Prefetch* next) {
  LinePrefetch ahead(next);
  LinePrefetch nothing(nullptr);
  for (size_t c = 0; c < kivi_cells(dim); ++c) {
    const auto* cell = static_cast<const uint8_t*>(v) + c * kivi_cell_bytes(Bits);
    const size_t dims = at_most(dim - c * kCellElements, kCellElements);
    const SlotScales scales(cell_scales(cell, Bits), keys);
    const SlotScales minima(cell_scales(cell, Bits) + kCellElements, keys);
    for (size_t r = 0; r < rows; r += kQuadRows) {
      const KiviSumCall call = {cell, dims, p + r * kScoreStride, acc + r * dim + c * kCellElements, dim};
      with_rows<kQuadRows>(rows - r, [&](auto tag) {
        sum_kivi_cell<Bits, decltype(tag)::kValue>(call, scales, minima, r == 0 ? ahead : nothing);
      });
    }
  }
}

/// A cell's elements to floats: element e, lane l at out[e * stride + l]; `lanes` is 16 or 32.
template <int Bits>
void expand_cell(const uint8_t* cell, size_t elements, size_t lanes, float* out, size_t stride) {
  const uint16_t* scales = cell_scales(cell, Bits);
  alignas(kLine) float scale[kCellElements], minimum[kCellElements], code[kBlockKeys];
  for (size_t i = 0; i < kCellElements; i += 16) {
    Vec16::load_f16(scales + i).store(scale + i);
    Vec16::load_f16(scales + kCellElements + i).store(minimum + i);
  }
  constexpr int kZero = Bits == 8 ? kKiviByteZero : 0;
  for (size_t e = 0; e < elements; ++e) {
    const size_t quad = e / 4;
    const size_t shift = Bits * (quad % kQuadsPerByte<Bits>);
    const uint8_t* codes = cell + quad / kQuadsPerByte<Bits> * 4 * lanes + e % 4;
    for (size_t l = 0; l < lanes; ++l) {
      code[l] = static_cast<float>((codes[4 * l] >> shift & ((1 << Bits) - 1)) - kZero);
    }
    for (size_t l = 0; l < lanes; l += 16) {
      fma(Vec16::load(code + l), Vec16::set1(scale[e]), Vec16::set1(minimum[e])).store(out + e * stride + l);
    }
  }
}

template <int Bits>
void expand_keys_kivi(const void* part, size_t head_dim, float* out) {
  for (size_t c = 0; c < kivi_cells(head_dim); ++c) {
    expand_cell<Bits>(static_cast<const uint8_t*>(part) + c * kivi_cell_bytes(Bits),
                      at_most(head_dim - c * kCellElements, kCellElements), kBlockKeys,
                      out + c * kCellElements * kBlockKeys, kBlockKeys);
  }
}
template <int Bits>
void expand_values_kivi(const void* part, size_t dim, float* out) {
  for (size_t c = 0; c < kivi_cells(dim); ++c) {
    expand_cell<Bits>(static_cast<const uint8_t*>(part) + c * kivi_cell_bytes(Bits), kBlockKeys,
                      at_most(dim - c * kCellElements, kCellElements), out + c * kCellElements, dim);
  }
}

/// Scale and minimum of an element's lanes, as float16 bits; NaN both when a value is not finite.
template <int Bits>
ISTHMUS_INLINE void element_range(const float* x, size_t lanes, uint16_t* scale, uint16_t* minimum) {
  Vec16 top = Vec16::load(x);
  Vec16 bottom = top;
  Vec16 odd = top * Vec16::zero();
  for (size_t l = 16; l < lanes; l += 16) {
    const Vec16 more = Vec16::load(x + l);
    top = max(top, more);
    bottom = min(bottom, more);
    odd = odd + more * Vec16::zero();
  }
  const float poison = reduce_add(odd);  // 0, or NaN
  const float least = -reduce_max(Vec16::zero() - bottom) + poison;
  const float step = (reduce_max(top) - least) / kMostCode<Bits> + poison;
  alignas(kLine) uint16_t bits[16];
  Vec16::set1(step).store_f16(bits);
  alignas(kLine) float stored[16];
  Vec16::load_f16(bits).store(stored);
  *scale = bits[0];
  Vec16::set1(Bits == 8 ? least + stored[0] * kKiviByteZero : least).store_f16(bits);
  *minimum = bits[0];
}

/// Codes of an element's lanes, ready for a byte.
template <int Bits>
ISTHMUS_INLINE void element_codes(const float* x, size_t lanes, uint16_t scale_bits, uint16_t minimum_bits,
                                  uint32_t* codes) {
  const Vec16 scale = Vec16::set1_f16(&scale_bits);
  const Vec16 least = Vec16::set1_f16(&minimum_bits);
  const Vec16 zero = Vec16::set1(Bits == 8 ? kKiviByteZero : 0.0f);
  const Mask16 has_range = greater(scale, Vec16::zero());  // else all are the minimum, or NaN
  alignas(kLine) float code[kBlockKeys];
  for (size_t l = 0; l < lanes; l += 16) {
    const Vec16 steps = select(has_range, (Vec16::load(x + l) - least) / scale, Vec16::zero());
    const Vec16 rounded_code = round_even(steps + zero);
    max(min(rounded_code, Vec16::set1(kMostCode<Bits>)), Vec16::zero()).store(code + l);
  }
  for (size_t l = 0; l < lanes; ++l) codes[l] = static_cast<uint32_t>(code[l]);
}

/// The inverse of expand_cell(), as KvType says. Elements beyond `elements` become zeros.
template <int Bits>
void encode_cell(const float* x, size_t stride, size_t elements, size_t lanes, uint8_t* cell) {
  auto* scales = reinterpret_cast<uint16_t*>(cell + kivi_code_bytes(Bits));
  alignas(kLine) uint32_t words[kBlockKeys];
  alignas(kLine) uint32_t codes[kBlockKeys];
  for (size_t e = 0; e < kCellElements; ++e) {
    if (e % (4 * kQuadsPerByte<Bits>) == 0) {
      for (uint32_t& word : words) word = 0;
    }
    if (e < elements) {
      element_range<Bits>(x + e * stride, lanes, scales + e, scales + kCellElements + e);
      element_codes<Bits>(x + e * stride, lanes, scales[e], scales[kCellElements + e], codes);
      const size_t shift = 8 * (e % 4) + Bits * (e / 4 % kQuadsPerByte<Bits>);
      for (size_t l = 0; l < lanes; ++l) words[l] |= codes[l] << shift;
    } else {
      scales[e] = scales[kCellElements + e] = 0;
    }
    if ((e + 1) % (4 * kQuadsPerByte<Bits>) == 0) {
      const size_t chunk = e / (4 * kQuadsPerByte<Bits>);
      __builtin_memcpy(cell + chunk * 4 * lanes, words, 4 * lanes);
    }
  }
}

template <int Bits>
void encode_keys_kivi(const float* keys, size_t head_dim, void* part) {
  for (size_t c = 0; c < kivi_cells(head_dim); ++c) {
    encode_cell<Bits>(keys + c * kCellElements * kBlockKeys, kBlockKeys,
                      at_most(head_dim - c * kCellElements, kCellElements), kBlockKeys,
                      static_cast<uint8_t*>(part) + c * kivi_cell_bytes(Bits));
  }
}
template <int Bits>
void encode_values_kivi(const float* values, size_t dim, void* part) {
  for (size_t c = 0; c < kivi_cells(dim); ++c) {
    encode_cell<Bits>(values + c * kCellElements, dim, kBlockKeys,
                      at_most(dim - c * kCellElements, kCellElements),
                      static_cast<uint8_t*>(part) + c * kivi_cell_bytes(Bits));
  }
}

template <int Bits>
constexpr void put_kivi_kernels(AttentionKernels& k, KvType type) {
  const auto i = static_cast<size_t>(type);
  k.scores[i] = scores_kivi<Bits>;
  k.weighted_sum[i] = weighted_sum_kivi<Bits>;
  k.expand_keys[i] = expand_keys_kivi<Bits>;
  k.expand_values[i] = expand_values_kivi<Bits>;
  k.encode_keys[i] = encode_keys_kivi<Bits>;
  k.encode_values[i] = encode_values_kivi<Bits>;
}

}  // namespace
}  // namespace isthmus
