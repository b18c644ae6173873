// The inner loops of attention over one block of 32 keys, per instruction set: scores (Q K^T), the weighted
// sum (P V), the soft-max of one key range, and the expansion of a stored part to float32.
//
// Rows are (token, query head) pairs that share a KV head. One float32 fma chain per result, in ascending
// order of d (scores) and of keys (weighted sum), so results have the same bits for any tile, thread count
// and instruction set. A new KV codec adds a KvType and its functions here.
// Pure, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

enum class Isa;  // kernels/isa.h

/// How the K or V part of a block is stored. Values are stable: they are written in KV files.
///   kQ8: signed bytes times a float16 scale per key and kQ8Dims neighbouring dimensions. A part is one cell
///   per kQ8Dims dimensions, the last of `dims` dimensions <= kQ8Dims: code[32 * dims] then scale[32 slots].
///   The codes are in the order of integer dot products of four: in a K part [dims / 4][32 slots][4], plus
///   128; in a V part (of padded_dim dimensions) [32 slots / 4][dims][4]. A value is code * scale, which
///   float32 holds exactly.
///   kKivi8 .. kKivi1 (KIVI, Liu et al. 2024, arXiv 2402.02750): unsigned codes of 8, 4, 2 or 1 bits with a
///   float16 scale and minimum per group of 32: in a K part 32 slots of one dimension, in a V part 32
///   dimensions of one slot. A value is fma(code, scale, minimum); with 8 bits fma(code - 128, scale,
///   minimum), the minimum being the value of code 128. A part is written as a whole (encode_keys,
///   encode_values) and made of cells of kivi_cell_bytes(): a cell has 32 *elements* (dimensions, or slots)
///   times 32 *lanes* (slots, or dimensions; 16 in the last cell of an odd V part). Four elements are a quad;
///   the codes of 8 / bits quads share the bytes of a chunk [lanes][4], lowest bits first; chunks, then
///   scale[32 elements], then minimum[32 elements].
enum class KvType : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kQ8 = 3,
  kKivi8 = 4,
  kKivi4 = 5,
  kKivi2 = 6,
  kKivi1 = 7,
};
inline constexpr size_t kKvTypes = 8;
/// Types below this one are written slot by slot.
inline constexpr size_t kSlotKvTypes = 4;
constexpr bool is_kivi(KvType type) { return type >= KvType::kKivi8; }
/// Bits of a code of a KIVI type.
constexpr int kivi_bits(KvType type) {
  return 8 >> (static_cast<int>(type) - static_cast<int>(KvType::kKivi8));
}

inline constexpr size_t kBlockKeys = 32;   // keys of one KV block
inline constexpr size_t kRangeKeys = 256;  // keys of one soft-max range
/// From one row of scores to the next, in floats: one line more than a range, since rows whole kilobytes
/// apart would share few sets of the first-level cache.
inline constexpr size_t kScoreStride = kRangeKeys + 16;

/// Values of a V row as stored: head_dim rounded up to whole vectors.
constexpr size_t padded_dim(size_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// Dimensions that share a scale in a kQ8 part.
inline constexpr size_t kQ8Dims = 32;
constexpr size_t q8_groups(size_t head_dim) { return (head_dim + kQ8Dims - 1) / kQ8Dims; }
inline constexpr size_t kMaxHeadDim = 1024;
/// From one cell of a kQ8 part to the next.
inline constexpr size_t kQ8CellBytes = kQ8Dims * kBlockKeys + kBlockKeys * sizeof(uint16_t);
inline constexpr int kQ8KeyZero = 128;  // the code 0 in a K part

inline constexpr size_t kQ8Words = 16;
/// Cells of a KIVI part, and their bytes.
constexpr size_t kivi_cells(size_t dims) { return (dims + 31) / 32; }
constexpr size_t kivi_code_bytes(int bits) { return static_cast<size_t>(bits) * 4 * kBlockKeys; }
constexpr size_t kivi_cell_bytes(int bits) {
  return kivi_code_bytes(bits) + size_t{2} * 32 * sizeof(uint16_t);
}
/// A row of queries for scores_kivi: int32 words [cells][kQ8Words] (32 numbers of 16 bits, in the instruction
/// set's own order), and the bits of the float32 units [cells].
constexpr size_t kivi_query_words(size_t head_dim) { return kivi_cells(head_dim) * (kQ8Words + 1); }
inline constexpr size_t kBiasLanes = 16;
inline constexpr int kKiviByteZero = 128;  // what is taken off codes of 8 bits

/// A row of queries in 16 bits for scores_q8: int32 words [groups][16] (32 values, in the instruction set's
/// own order), start[groups], and the bits of the float32 scale.
constexpr size_t q8_query_words(size_t head_dim) { return q8_groups(head_dim) * (kQ8Words + 1) + 1; }

/// A row of queries for scores_pairs: int32 words [head_dim / 2], each two 16-bit numbers, and the bits of
/// the float32 scale.
constexpr size_t pair_query_words(size_t head_dim) { return head_dim / 2 + 1; }

/// What to bring into the caches while a part is read, line for line: line l of the part at hand prefetches
/// from[l % 4] + l / 4 * step. Several places far apart keep more of the memory system busy than one
/// ascending stream does on some machines.
struct Prefetch {
  const char* from[4];
  size_t step;
};

struct AttentionKernels {
  size_t max_rows;  // rows that share one load of K or V; more rows are done in several passes

  /// scores[r][j] = sum over d of q[r * ldq + d] * k[d][j], j in [0, 32); rows of scores are kScoreStride
  /// apart. `k` is a stored K part [head_dim][32], 64-byte aligned. `next` may be null. kQ8 and the KIVI
  /// types have scores_q8 and scores_kivi instead (null here).
  void (*scores[kKvTypes])(const void* k, const float* q, size_t ldq, size_t rows, size_t head_dim,
                           float* out, const Prefetch* next);
  /// acc[r][d] = fma over j in [0, keys) of p[r][j] * v[j][d], d in [0, dim); dim is a multiple of 16; rows
  /// of p are kScoreStride apart, rows of acc dim. `v` is a stored V part [32][dim].
  /// kQ8: per row and cell, w[j] = p[j] * scale[j] as 15-bit whole numbers of most / 32512, most = the
  /// largest w[j]; the exact integer sum over j of w[j] * code[j][d] is added to acc by one fma. p is not
  /// negative. KIVI has sum_kivi instead (null here).
  void (*weighted_sum[kKvTypes])(const void* v, const float* p, size_t rows, size_t keys, size_t dim,
                                 float* acc, const Prefetch* next);
  /// Queries for scores_kivi: per row and cell, whole numbers of max|q| / 32512;
  /// out[rows][kivi_query_words(head_dim)].
  void (*kivi_query_codes)(const float* q, size_t ldq, size_t rows, size_t head_dim, int32_t* out);
  /// scores() of a KIVI part. Scales become whole numbers of their cell's largest / 32512; a query's number
  /// times a scale's is rounded to (a * b + 2^14) >> 15. Per cell the exact integer sum over d of that times
  /// code[d][j], times the units, by one fma onto what is there; the sum of q[d] * minimum[d] comes first.
  void (*scores_kivi[kKvTypes])(const void* k, const int32_t* codes, const float* q, size_t ldq, size_t rows,
                                size_t head_dim, float* out, const Prefetch* next);
  /// weighted_sum() of a KIVI part, p in [0, 1]: whole numbers of 1 / 32512, times those of the scales as
  /// above. Per cell the exact integer sum over j of that times code[j][d], times the unit, is added to acc
  /// by one fma. The minima's share, the same for all dimensions of a cell, waits in
  /// bias[row][cell][kBiasLanes]: lane i takes p[j] * minimum[j] of j = i, then 16 + i, by fma.
  void (*sum_kivi[kKvTypes])(const void* v, const float* p, size_t rows, size_t keys, size_t dim, float* acc,
                             float* bias, const Prefetch* next);
  /// Adds each cell's bias, its lanes summed up, to its dimensions of acc[rows][dim].
  void (*add_kivi_bias)(const float* bias, size_t rows, size_t dim, float* acc);
  /// Rows q[r * ldq + d] to 16 bits: scale = max|q| / 32512, whole numbers rounded to nearest even;
  /// out[rows][q8_query_words(head_dim)]. A row that is not finite gives a scale of NaN.
  void (*quantize_queries)(const float* q, size_t ldq, size_t rows, size_t head_dim, int32_t* out);
  /// scores() of a stored kQ8 K part: per cell the exact integer dot product, then one float32 fma chain over
  /// the cells in ascending order (sum * key's scale), times the query's scale.
  void (*scores_q8)(const void* k, const int32_t* queries, size_t rows, size_t head_dim, float* out,
                    const Prefetch* next);
  /// A stored K part to float32 [head_dim][32], exact.
  void (*expand_keys[kKvTypes])(const void* part, size_t head_dim, float* out);
  /// A stored V part [32][dim], dim a multiple of 16, to float32, exact. Slots that were never written may
  /// give any value.
  void (*expand_values[kKvTypes])(const void* part, size_t dim, float* out);
  /// The whole K part [head_dim][32], or V part [32][dim], from float32 to a KIVI type (null for others):
  /// scale = (max - min) / (2^bits - 1) rounded to float16, code = round-half-even((x - minimum) / scale)
  /// within range. A group with a value that is not finite gives NaN.
  void (*encode_keys[kKvTypes])(const float* keys, size_t head_dim, void* part);
  void (*encode_values[kKvTypes])(const float* values, size_t dim, void* part);
  /// A row x[n] as kQ8 stores it: codes[n], scales[q8_groups(n)] (float16 bits). Per group: scale = max|x| /
  /// 127 rounded to float16, code = round-half-even(x / scale) within +-127. A group with a value that is not
  /// finite, or beyond 127 * 65504, gives NaN; magnitudes too small for a float16 scale give 0.
  void (*quantize_q8)(const float* x, size_t n, int8_t* codes, uint16_t* scales);

  /// Products in 16-bit whole numbers (class `fast`): the sums are exact in int32. A word holds two
  /// neighbours, the first in its low half. Codes are rounded to nearest even; a number that is not finite
  /// makes the scale NaN. What is stored as kF32 or kQ8 has no pairs (null here).
  ///
  /// means[head_dim]: of |k| over the 32 slots of a stored K part, or 1 where it is not within 1e-6 to 1e6;
  /// and inverses[head_dim] = 1 / means. Some models have keys whose dimensions differ a hundredfold in size;
  /// divided by the means they are even, and the query takes the factors.
  void (*key_means[kKvTypes])(const void* part, size_t head_dim, float* means, float* inverses);
  /// Rows q[r * ldq + d] * means[d] to out[rows][pair_query_words(head_dim)], scale = max(sum|.| / 130000,
  /// max|.| / 32767).
  void (*query_pairs)(const float* q, size_t ldq, size_t rows, size_t head_dim, const float* means,
                      int32_t* out);
  /// A stored K part times the inverses to words[head_dim / 2][32 slots] and scales[32 slots], scale =
  /// max|.| / 16383 of the key.
  void (*key_pairs[kKvTypes])(const void* part, size_t head_dim, const float* inverses, int32_t* words,
                              float* scales);
  /// A stored V part, whose slots are all written, to words[32 / 2][dim] (pairs of slots in the set's own
  /// order) and scales[dim], codes in units of max|v| / 2047 of the dimension; the scales also undo that of
  /// the weights, 1 / 32767.
  void (*value_pairs[kKvTypes])(const void* part, size_t dim, int32_t* words, float* scales);
  /// scores() of key_pairs(): the exact sum times the key's scale times the query's.
  void (*scores_pairs)(const int32_t* words, const float* scales, const int32_t* queries, size_t rows,
                       size_t head_dim, float* out);
  /// weighted_sum() of value_pairs() over all 32 slots: weights p in [0, 1] become codes of 1 / 32767, and
  /// one fma adds the exact sum times the dimension's scale.
  void (*weighted_sum_pairs)(const int32_t* words, const float* scales, const float* p, size_t rows,
                             size_t dim, float* acc);

  /// In place over rows of scores x[n], n a multiple of 32, kScoreStride apart: x = 2^(x - max), giving the
  /// max and the sum of each row. When all of a row is -infinity: x = 0, max = -infinity, sum = 0. softcap >
  /// 0 first maps x to log2(e) * softcap * tanh(x / softcap).
  void (*softmax)(float* x, size_t rows, size_t n, float softcap, float* max, float* sum);
  /// Joins a later range (m2, s2, a2[dim]) to a running state (m, s, a[dim]), dim a multiple of 16; m in
  /// powers of two.
  void (*combine)(float* m, float* s, float* a, float m2, float s2, const float* a2, size_t dim);
  /// Rotates an expanded K part k[head_dim][32] so that key j turns by offset j; c and s are [dims/2][32];
  /// `interleaved` pairs rows (2i, 2i + 1), else (i, i + dims/2).
  void (*rotate_keys)(float* k, const float* c, const float* s, size_t dims, bool interleaved);
};

/// The tables as float_kernels() and float_kernels_for() choose them.
const AttentionKernels& attention_kernels();
const AttentionKernels& attention_kernels_for(Isa isa);

}  // namespace isthmus
