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

/// The largest of a row's or cell's numbers in 16 bits: two planes of signed bytes hold it.
constexpr float kNarrowMost = 32512.0f;
/// scaled() divides by this.
constexpr float kNarrowUnit = 32768.0f;

/// A cell's scales in 16 bits, in units of `unit`.
struct KiviScales {
  Narrow codes;
  float unit;
  ISTHMUS_INLINE KiviScales(Vec16 low, Vec16 high) {
    // Not of NaN: the minima say that.
    const Vec16 zero = Vec16::zero();
    const float most =
        reduce_max(max(select(greater(low, zero), low, zero), select(greater(high, zero), high, zero)));
    const Vec16 inverse = Vec16::set1(kNarrowMost / (kLeast > most ? kLeast : most));
    codes = Narrow::from(low * inverse, high * inverse);
    unit = most / kNarrowMost;
  }
};

/// Words of rows of queries that have one block's scales in them, cell by cell.
template <size_t Rows>
struct KiviQueries {
  alignas(kLine) int32_t words[Rows][kMostCells * kQ8Words];
  int32_t start[Rows][kMostCells];
  float unit[Rows][kMostCells];
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

/// Rows of queries for scores_kivi: per cell 32 numbers in 16 bits and their unit.
void kivi_query_codes(const float* q, size_t ldq, size_t rows, size_t head_dim, int32_t* out) {
  const size_t cells = kivi_cells(head_dim);
  for (size_t r = 0; r < rows; ++r, q += ldq, out += kivi_query_words(head_dim)) {
    for (size_t c = 0; c < cells; ++c) {
      Vec16 low, high;
      load_cell(q + c * kCellElements, head_dim - c * kCellElements, low, high);
      const float most = reduce_max(max(abs(low), abs(high)));
      const Vec16 inverse = Vec16::set1(kNarrowMost / (kLeast > most ? kLeast : most));
      Narrow::from(low * inverse, high * inverse).store(out + c * kQ8Words);
      out[cells * kQ8Words + c] = __builtin_bit_cast(int32_t, most / kNarrowMost * kNarrowUnit);
    }
  }
}

struct KiviScoreCall {
  const uint8_t* k;
  const int32_t* queries;
  const float* q;
  size_t ldq;
  size_t head_dim;
  size_t cells;
  float* out;
  const Prefetch* next;
};

/// Queries times scales, in units of their own, cell by cell; rows share what is done for a cell.
template <int Bits, size_t Rows>
ISTHMUS_INLINE void scale_queries(const KiviScoreCall& call, KiviQueries<Rows>& out) {
  const size_t row_words = kivi_query_words(call.head_dim);
  Vec16 bias[Rows];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) bias[r] = Vec16::zero();
  for (size_t c = 0; c < call.cells; ++c) {
    const uint16_t* stored = cell_scales(call.k + c * kivi_cell_bytes(Bits), Bits);
    const KiviScales scales(Vec16::load_f16(stored), Vec16::load_f16(stored + 16));
    const Vec16 least_low = Vec16::load_f16(stored + 32);
    const Vec16 least_high = Vec16::load_f16(stored + 48);
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
      Vec16 low, high;
      load_cell(call.q + r * call.ldq + c * kCellElements, call.head_dim - c * kCellElements, low, high);
      bias[r] = fma(high, least_high, fma(low, least_low, bias[r]));
      const int32_t* words = call.queries + r * row_words;
      const Narrow x = scaled(Narrow::load(words + c * kQ8Words), scales.codes);
      x.pack_query_words(out.words[r] + c * kQ8Words);
      if constexpr (Bits == 8 && kQuadStart != 0) out.start[r][c] = kQuadStart * x.sum();
      out.unit[r][c] = __builtin_bit_cast(float, words[call.cells * kQ8Words + c]) * scales.unit;
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) out.bias[r] = reduce_add(bias[r]);
  keep_in_memory(out.words);
}

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
    for (size_t v = 0; v < Vecs; ++v) acc[r][v] = Vec16::set1(queries.bias[r]);
  }
  LinePrefetch ahead(first_vec == 0 ? call.next : nullptr);
  for (size_t c = 0; c < call.cells; ++c) {
    QuadSum sum[Rows][Vecs];
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) {
        sum[r][v].start(Bits == 8 && kQuadStart != 0 ? queries.start[r][c] : 0);
      }
    }
    add_kivi_cell<Bits>(sum, call.k + c * kivi_cell_bytes(Bits) + 64 * first_vec,
                        queries.words[0] + c * kQ8Words, kMostCells * kQ8Words, ahead);
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
      const Vec16 unit = Vec16::set1(queries.unit[r][c]);
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) acc[r][v] = fma(sum[r][v].total(), unit, acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) acc[r][v].store(call.out + r * kScoreStride + 16 * (first_vec + v));
  }
}

template <int Bits>
void scores_kivi(const void* k, const int32_t* codes, const float* q, size_t ldq, size_t rows,
                 size_t head_dim, float* out, const Prefetch* next) {
  for (size_t r = 0; r < rows; r += kQuadRows) {
    const KiviScoreCall call = {static_cast<const uint8_t*>(k),
                                codes + r * kivi_query_words(head_dim),
                                q + r * ldq,
                                ldq,
                                head_dim,
                                kivi_cells(head_dim),
                                out + r * kScoreStride,
                                next};
    with_rows<kQuadRows>(rows - r, [&](auto tag) {
      constexpr size_t kRows = decltype(tag)::kValue;
      KiviQueries<kRows> queries;
      scale_queries<Bits>(call, queries);
      for (size_t v = 0; v < kVecsPerBlock; v += kQuadVecs) {
        score_kivi_tile<Bits, kRows, kQuadVecs>(call, queries, v);
      }
    });
    next = nullptr;
  }
}

/// One cell of values and what it adds to.
struct KiviSumCall {
  const uint8_t* codes;
  size_t dims;           // of the cell
  const int32_t* words;  // [rows], kMostCells * kQ8Words apart
  float unit;
  float* acc;  // [rows], `stride` apart
  size_t stride;
};

/// A cell's scales and minima, those of the first `keys` slots.
struct KiviSlots {
  Vec16 low_minima, high_minima;
  KiviScales scales;
  ISTHMUS_INLINE KiviSlots(const uint16_t* stored, size_t keys)
      : low_minima(Vec16::load_f16(stored + 32)),
        high_minima(Vec16::load_f16(stored + 48)),
        scales(Vec16::load_f16(stored), Vec16::load_f16(stored + 16)) {
    // What nobody sees must not poison the others: their weights are 0.
    if (keys < kBlockKeys) keep_slots(keys, low_minima, high_minima);
  }
};

/// A row's weights, as floats and in 16 bits.
struct KiviWeights {
  Vec16 low, high;
  Narrow codes;
  ISTHMUS_INLINE void load(const float* p) {
    low = Vec16::load(p);
    high = Vec16::load(p + 16);
    codes = Narrow::from(low * Vec16::set1(kNarrowMost), high * Vec16::set1(kNarrowMost));
  }
};
constexpr float kWeightUnit = kNarrowUnit / kNarrowMost;

template <int Bits, size_t Rows, size_t Vecs>
ISTHMUS_INLINE void sum_kivi_tile(const KiviSumCall& call, size_t first, LinePrefetch& ahead) {
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
        const QuadWord word =
            QuadWord::load(call.words + r * kMostCells * kQ8Words, chunk * kQuadsPerByte<Bits> + kPart);
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
      fma(sum[r][v].total(), Vec16::set1(call.unit), Vec16::load(acc + 16 * v)).store(acc + 16 * v);
    }
  }
}

template <int Bits, size_t Rows>
ISTHMUS_INLINE void sum_kivi_cell(const KiviSumCall& call, LinePrefetch& ahead) {
  size_t d = 0;
  for (; d + 16 * kQuadVecs <= call.dims; d += 16 * kQuadVecs) {
    sum_kivi_tile<Bits, Rows, kQuadVecs>(call, d, ahead);
  }
  if constexpr (kQuadVecs > 1) {
    if (d < call.dims) sum_kivi_tile<Bits, Rows, 1>(call, d, ahead);
  }
  ahead.lines(2);
}

/// All cells for some rows: first the weights of all, since words that were just stored are slow to load.
template <int Bits, size_t Rows>
ISTHMUS_INLINE void sum_kivi_rows(const uint8_t* part, const float* p, size_t keys, size_t dim, float* acc,
                                  float* bias, const Prefetch* next) {
  const size_t cells = kivi_cells(dim);
  alignas(kLine) int32_t words[Rows][kMostCells * kQ8Words];
  float units[kMostCells];
  KiviWeights weights[Rows];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) weights[r].load(p + r * kScoreStride);
  for (size_t c = 0; c < cells; ++c) {
    const KiviSlots slots(cell_scales(part + c * kivi_cell_bytes(Bits), Bits), keys);
    units[c] = slots.scales.unit * kWeightUnit;
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
      scaled(weights[r].codes, slots.scales.codes).pack_weight_words(words[r] + c * kQ8Words);
      float* lanes = bias + (r * cells + c) * kBiasLanes;
      const Vec16 sum = fma(weights[r].low, slots.low_minima, Vec16::load(lanes));
      fma(weights[r].high, slots.high_minima, sum).store(lanes);
    }
  }
  keep_in_memory(words);
  LinePrefetch ahead(next);
  for (size_t c = 0; c < cells; ++c) {
    const KiviSumCall call = {
        part + c * kivi_cell_bytes(Bits), at_most(dim - c * kCellElements, kCellElements),
        words[0] + c * kQ8Words,          units[c],
        acc + c * kCellElements,          dim};
    sum_kivi_cell<Bits, Rows>(call, ahead);
  }
}

template <int Bits>
void sum_kivi(const void* v, const float* p, size_t rows, size_t keys, size_t dim, float* acc, float* bias,
              const Prefetch* next) {
  for (size_t r = 0; r < rows; r += kQuadRows) {
    with_rows<kQuadRows>(rows - r, [&](auto tag) {
      sum_kivi_rows<Bits, decltype(tag)::kValue>(static_cast<const uint8_t*>(v), p + r * kScoreStride, keys,
                                                 dim, acc + r * dim, bias + r * kivi_cells(dim) * kBiasLanes,
                                                 next);
    });
    next = nullptr;
  }
}

void add_kivi_bias(const float* bias, size_t rows, size_t dim, float* acc) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < kivi_cells(dim); ++c, bias += kBiasLanes) {
      const Vec16 sum = Vec16::set1(reduce_add(Vec16::load(bias)));
      const size_t end = at_most((c + 1) * kCellElements, dim);
      for (size_t d = c * kCellElements; d < end; d += 16) {
        float* to = acc + r * dim + d;
        (Vec16::load(to) + sum).store(to);
      }
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
  k.scores_kivi[i] = scores_kivi<Bits>;
  k.sum_kivi[i] = sum_kivi<Bits>;
  k.expand_keys[i] = expand_keys_kivi<Bits>;
  k.expand_values[i] = expand_values_kivi<Bits>;
  k.encode_keys[i] = encode_keys_kivi<Bits>;
  k.encode_values[i] = encode_values_kivi<Bits>;
}

}  // namespace
}  // namespace isthmus
