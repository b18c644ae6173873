// The sizes and working memory of attention: how a call is cut into units, and what a thread needs to run
// one. Used by ops/attention.cc and ops/attention_unit.h alone, whose words it shares. Plain data: memory
// belongs to the caller.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/generic/attention_kernels.h"
#include "ops/attention.h"

namespace isthmus::attention_unit {

constexpr size_t kTileRows = 96;
/// Larger heads' blocks, expanded, would push the queries out of the first-level cache (no gain at 128, loss
/// at 256).
constexpr size_t kMostExpandedDim = 96;
constexpr size_t kBlocksPerRange = kRangeKeys / kBlockKeys;
constexpr size_t kBlockPairs = kBlockKeys / 2;
constexpr size_t kLine = 64;  // bytes of a cache line
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

constexpr size_t align64(size_t n) { return (n + 63) / 64 * 64; }

/// Hands out 64-byte aligned arrays; with a null base it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  float* floats(size_t n) { return array<float>(n); }
  template <class T>
  T* array(size_t n) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += align64(n * sizeof(T));
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

inline const AttentionKernels& kernels_of(const AttentionArgs& args) {
  return args.kernels != nullptr ? *args.kernels : attention_kernels();
}

/// What follows from the head counts and sizes alone.
struct Shape {
  Shape(const AttentionHeads& heads, const AttentionKernels& kernels)
      : group(heads.n_heads / heads.n_kv_heads),
        head_dim(heads.head_dim),
        dim(padded_dim(heads.head_dim)),
        pass_tokens(std::max<size_t>(1, kernels.max_rows / group)),
        tile_tokens(std::max<size_t>(1, kTileRows / (pass_tokens * group)) * pass_tokens),
        tile_rows(tile_tokens * group),
        pass_rows(pass_tokens * group) {}
  explicit Shape(const AttentionArgs& args)
      : Shape({args.n_heads, args.n_kv_heads, args.head_dim}, kernels_of(args)) {}

  /// Smaller tiles for a batch that would give too few units to `threads`.
  void shrink_tile(const AttentionArgs& args, size_t threads) {
    const auto units = [&] {
      size_t tiles = 0;
      for (const AttentionSeq& seq : args.seqs) tiles += (seq.tokens + tile_tokens - 1) / tile_tokens;
      return tiles * args.n_kv_heads;
    };
    while (tile_tokens > pass_tokens && units() < kUnitsPerThread * threads) {
      tile_tokens = std::max<size_t>(1, tile_tokens / pass_tokens / 2) * pass_tokens;
    }
  }
  static constexpr size_t kUnitsPerThread = 8;
  size_t bias_lanes() const { return kivi_cells(dim) * kBiasLanes; }  // of a row

  size_t group;
  size_t head_dim;
  size_t dim;
  size_t pass_tokens;
  size_t tile_tokens;
  size_t tile_rows;  // at most, also after shrink_tile()
  size_t pass_rows;
};

/// A tile of tokens and one KV head.
struct Unit {
  const AttentionSeq* seq;
  const KvStreamRef* stream;
  size_t kv_head;
  size_t first;  // token within the sequence
  size_t tokens;
  size_t begin_key, end_key;  // union of what the tokens see; empty: begin_key == end_key == 0

  size_t first_range() const { return begin_key / kRangeKeys; }
  size_t ranges() const { return end_key == 0 ? 0 : (end_key + kRangeKeys - 1) / kRangeKeys - first_range(); }
};

/// The view in the stream's own numbering of its keys.
inline QueryView shifted(QueryView view, const KvStreamRef& stream) {
  const auto less = [&](uint32_t key) {
    return key > stream.removed ? static_cast<uint32_t>(key - stream.removed) : 0;
  };
  view.first_key = less(view.first_key);
  view.end_key = less(view.end_key);
  view.tree_begin = less(view.tree_begin);
  return view;
}

inline Unit make_unit(const AttentionSeq& seq, const Shape& shape, size_t tile, size_t kv_head) {
  Unit unit{&seq, &seq.heads[kv_head], kv_head, tile * shape.tile_tokens, 0, 0, 0};
  unit.tokens = std::min(shape.tile_tokens, seq.tokens - unit.first);
  size_t begin = std::numeric_limits<size_t>::max();
  for (const QueryView& seen : seq.views.subspan(unit.first, unit.tokens)) {
    const QueryView view = shifted(seen, *unit.stream);
    const size_t end = std::min<size_t>(view.end_key, unit.stream->keys);
    if (view.first_key >= end) continue;
    begin = std::min<size_t>(begin, view.first_key);
    unit.end_key = std::max(unit.end_key, end);
  }
  unit.begin_key = unit.end_key == 0 ? 0 : begin;
  return unit;
}

inline size_t tiles_of(const AttentionSeq& seq, const Shape& shape) {
  return (seq.tokens + shape.tile_tokens - 1) / shape.tile_tokens;
}

/// Calls f(unit, index) for all units in a fixed order: within a sequence and KV head the last tile, which
/// sees most, comes first.
template <class F>
void for_each_unit(const AttentionArgs& args, const Shape& shape, F f) {
  size_t index = 0;
  for (const AttentionSeq& seq : args.seqs) {
    const size_t tiles = tiles_of(seq, shape);
    for (size_t h = 0; h < args.n_kv_heads; ++h) {
      for (size_t t = tiles; t-- > 0;) f(make_unit(seq, shape, t, h), index++);
    }
  }
}

inline size_t count_units(const AttentionArgs& args, const Shape& shape) {
  size_t tiles = 0;
  for (const AttentionSeq& seq : args.seqs) tiles += tiles_of(seq, shape);
  return tiles * args.n_kv_heads;
}

/// Few units for many threads: ranges of one unit go to several threads.
inline bool splits(size_t units, size_t threads) {
  return threads > 1 && units < Shape::kUnitsPerThread * threads;
}

/// (max, sum, acc) of each row of a unit: of one range, or of all ranges so far.
struct RowState {
  float* max;  // [rows]
  float* sum;  // [rows]
  float* acc;  // [rows][dim]
};
inline RowState carve_state(Carver& carver, size_t rows, size_t dim) {
  RowState state{};
  state.max = carver.floats(rows);
  state.sum = carver.floats(rows);
  state.acc = carver.floats(rows * dim);
  return state;
}
inline size_t state_bytes(size_t rows, size_t dim) {
  Carver carver(nullptr);
  carve_state(carver, rows, dim);
  return carver.used();
}

/// Working memory of one thread.
struct Workspace {
  Workspace(std::byte* base, const Shape& shape) {
    Carver carver(base);
    query = carver.floats(shape.tile_rows * shape.head_dim);
    absolute = carver.floats(shape.tile_rows * shape.head_dim);
    turned = carver.floats(shape.pass_rows * shape.head_dim);
    query_codes = carver.array<int32_t>(shape.tile_rows * q8_query_words(shape.head_dim));
    turned_codes = carver.array<int32_t>(shape.pass_rows * q8_query_words(shape.head_dim));
    kivi_codes = carver.array<int32_t>(shape.tile_rows * kivi_query_words(shape.head_dim));
    scores = carver.floats(shape.tile_rows * kScoreStride);
    range = carve_state(carver, shape.tile_rows, shape.dim);
    total = carve_state(carver, shape.tile_rows, shape.dim);
    keys = carver.floats(kRangeKeys * shape.head_dim);
    path_keys = carver.floats(kRangeKeys * shape.head_dim);
    path_values = carver.floats(kRangeKeys * shape.dim);
    rope_row = carver.floats(shape.head_dim);
    expanded = carver.floats(kBlockKeys * shape.dim);
    query_pairs = carver.array<int32_t>(shape.tile_rows * pair_query_words(shape.head_dim));
    key_means = carver.floats(shape.head_dim);
    key_inverses = carver.floats(shape.head_dim);
    pairs = carver.array<int32_t>(kBlockPairs * shape.dim);
    bias = carver.floats(shape.tile_rows * shape.bias_lanes());
    pair_scales = carver.floats(std::max(kBlockKeys, shape.dim));
    bytes = carver.used();
  }

  float* query;     // [rows of the unit][head_dim], scaled
  float* absolute;  // the same, rotated by their positions
  float* turned;    // [rows of a pass][head_dim]: rotated for the block at hand
  int32_t*
      query_codes;  // [rows of the unit][q8_query_words]: of `query`, or of `absolute` where there is a rope
  int32_t* turned_codes;  // [rows of a pass][q8_query_words]; enough for kivi_query_words, too
  int32_t* kivi_codes;    // [rows of the unit][kivi_query_words]: of the same rows as query_codes
  float* scores;          // [rows of the unit][256]
  RowState range;
  RowState total;
  float* keys;  // [8 blocks][head_dim][32]: K parts that had to be rotated
  // K and V parts of one range of a path through a token tree, of any codec.
  float* path_keys;      // [8 blocks] of at most 32 * head_dim floats
  float* path_values;    // [8 blocks] of at most 32 * dim floats
  float* rope_row;       // [dims]
  float* expanded;       // the K or V part at hand
  int32_t* query_pairs;  // [rows of the unit][pair_query_words], for the range at hand
  // Of the range's first block: [head_dim].
  float* key_means;
  float* key_inverses;
  // The K or V part at hand in 16 bits.
  int32_t* pairs;      // [head_dim / 2][32] or [32 / 2][dim]
  float* pair_scales;  // [32] or [dim]
  float* bias;         // [rows of the unit][bias_lanes()]: of the range at hand
  size_t bytes;
};

/// Bits j of the keys 32 * block + j that a token sees.
inline uint32_t visible_keys(const QueryView& view, size_t keys, size_t block) {
  const size_t base = block * kBlockKeys;
  const size_t end = std::min<size_t>(view.end_key, keys);
  const auto below = [&](size_t limit) {  // bits of the keys under `limit`
    if (limit <= base) return 0u;
    return limit - base >= kBlockKeys ? ~0u : (1u << (limit - base)) - 1;
  };
  uint32_t bits = below(end) & ~below(view.first_key);
  if (view.tree_mask == nullptr || bits == 0) return bits;
  uint32_t tree = bits & ~below(view.tree_begin);
  for (uint32_t rest = tree; rest != 0; rest &= rest - 1) {
    const size_t j = static_cast<size_t>(std::countr_zero(rest));
    const size_t bit = base + j - view.tree_begin;
    if ((view.tree_mask[bit / 64] >> (bit % 64) & 1) == 0) bits &= ~(1u << j);
  }
  return bits;
}

}  // namespace isthmus::attention_unit
