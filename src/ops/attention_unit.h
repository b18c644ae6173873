// One unit of attention: a tile of tokens of one sequence times one KV head, worked through range by range.
// The inner half of ops/attention.cc, whose other half hands units to threads; nothing else includes it.
//
// Words of ops/attention.cc's halves, beyond the header's: a *unit* is a tile of consecutive tokens of one
// sequence times one KV head; its rows are token-major, [token][head of the group]. A *pass* is the tokens of
// a unit whose rows the kernels take at once. `dim` is the padded head dimension.
//
// Loop order: unit, range, block, pass. A unit is large, so that K and V of a block are read once from afar,
// expanded to float32 once, and then stay in the first-level cache while the passes go over them; a pass is
// what the registers hold. With one pass (generation) nothing is expanded, since each value is used once. In
// 16-bit arithmetic every part is turned into whole numbers in the place of that.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "ops/attention_shape.h"
#include "ops/linear_streams.h"

namespace isthmus::attention_unit {

constexpr float kLog2E = 0x1.715476p+0f;

inline size_t streams_of_plan() {
  const StreamPlan plan = stream_plan();
  if (plan.prefetch_bytes == 0) return 0;
  return plan.panels >= 4 ? 4 : plan.panels >= 2 ? 2 : 1;
}

/// Works on one unit at a time.
class UnitRunner {
 public:
  UnitRunner(const AttentionArgs& args, const Shape& shape, std::byte* memory)
      : args_(args),
        shape_(shape),
        kernels_(kernels_of(args)),
        work_(memory, shape),
        streams_(streams_of_plan()) {}

  /// Copies and scales the unit's query rows.
  void open(const Unit& unit) {
    unit_ = unit;
    absolute_ready_ = false;
    codes_ready_ = false;
    kivi_codes_ready_ = false;
    const size_t row_floats = shape_.group * shape_.head_dim;
    // Weights are powers of two; a cap bends the scores before they can become exponents of two.
    const float scale = args_.softcap > 0.0f ? args_.scale : args_.scale * kLog2E;
    for (size_t t = 0; t < unit.tokens; ++t) {
      const size_t token = unit.seq->first_token + unit.first + t;
      const float* q = args_.q + token * args_.ldq + unit.kv_head * row_floats;
      float* out = work_.query + t * row_floats;
      for (size_t i = 0; i < row_floats; ++i) out[i] = q[i] * scale;
    }
    std::fill_n(work_.total.max, rows(), kMinusInfinity);
    std::fill_n(work_.total.sum, rows(), 0.0f);
  }

  /// (max, sum, acc) of one range of keys, into `out`. acc stays unset for rows that see nothing there.
  void run_range(size_t range, const RowState& out) {
    range_begin_ = range * kRangeKeys;
    range_end_ = std::min(unit_.end_key, range_begin_ + kRangeKeys);
    first_block_ = range_begin_ / kBlockKeys;
    if (args_.rope != nullptr) rotate_keys();
    const bool tile = unit_.tokens > shape_.pass_tokens && shape_.dim <= kMostExpandedDim;
    if ((tile || in_pairs()) && !any_sees_path()) return run_tile(out);
    for (size_t first = 0; first < unit_.tokens;) {
      if (sees_path(first)) {
        run_path(first, out);
        ++first;
        continue;
      }
      size_t last = first + 1;
      while (last < unit_.tokens && last - first < shape_.pass_tokens && !sees_path(last)) ++last;
      run_pass(first, last, out);
      first = last;
    }
  }

  /// Joins a later range to the running total.
  void join(const RowState& range) {
    for (size_t r = 0; r < rows(); ++r) {
      kernels_.combine(&work_.total.max[r], &work_.total.sum[r], work_.total.acc + r * shape_.dim,
                       range.max[r], range.sum[r], range.acc + r * shape_.dim, shape_.dim);
    }
  }

  void run_all() {
    for (size_t i = 0; i < unit_.ranges(); ++i) {
      run_range(unit_.first_range() + i, work_.range);
      join(work_.range);
    }
    write();
  }

  /// Divides by the sums and stores the unit's rows; zeros for rows that saw nothing.
  void write() {
    for (size_t r = 0; r < rows(); ++r) {
      const size_t token = unit_.seq->first_token + unit_.first + r / shape_.group;
      const size_t head = unit_.kv_head * shape_.group + r % shape_.group;
      float* out = args_.out + token * args_.ldo + head * shape_.head_dim;
      if (work_.total.max[r] == kMinusInfinity) {
        std::fill_n(out, shape_.head_dim, 0.0f);
        continue;
      }
      const float inverse = 1.0f / work_.total.sum[r];
      const float* acc = work_.total.acc + r * shape_.dim;
      // + 0 turns -0 into +0: keys of weight 0, which only other rows of the pass see, may have flipped a
      // zero's sign.
      for (size_t d = 0; d < shape_.head_dim; ++d) out[d] = acc[d] * inverse + 0.0f;
    }
  }

 private:
  struct Part {
    const void* bytes;
    KvType type;
  };
  size_t rows() const { return unit_.tokens * shape_.group; }
  const KvBlockRef& block(size_t b) const {
    return path_active_ && b >= path_first_block_ ? path_blocks_[b - path_first_block_]
                                                  : unit_.stream->blocks[b];
  }
  QueryView view(size_t t) const {
    return path_active_ ? path_view_ : shifted(unit_.seq->views[unit_.first + t], *unit_.stream);
  }

  /// Whether token t reaches keys of a token tree in the range at hand. Its path is then read as if it stood
  /// alone, so that the result has the bits of the path without the tree; ranges below the tree are shared
  /// with the other tokens.
  bool sees_path(size_t t) const {
    const QueryView v = view(t);
    return v.tree_mask != nullptr && args_.rope == nullptr && range_begin_ + kRangeKeys > v.tree_begin &&
           v.first_key <= v.tree_begin;
  }

  bool any_sees_path() const {
    for (size_t t = 0; t < unit_.tokens; ++t) {
      if (sees_path(t)) return true;
    }
    return false;
  }

  /// The range at hand for token t alone, over the keys that it sees, moved together.
  void run_path(size_t t, const RowState& out) {
    const QueryView v = view(t);
    const size_t range_last = range_begin_ + kRangeKeys;
    size_t path_end =
        v.tree_begin;  // number of keys seen from the first key on, hidden committed ones included
    path_first_block_ = std::max<size_t>(v.tree_begin / kBlockKeys, first_block_);
    const size_t gathered = path_first_block_ * kBlockKeys;
    for (size_t key = gathered; key < std::min<size_t>(v.tree_begin, range_last); ++key) gather(key, key);
    const size_t end = std::min<size_t>(v.end_key, unit_.stream->keys);
    for (size_t key = v.tree_begin; key < end; ++key) {
      const size_t bit = key - v.tree_begin;
      if ((v.tree_mask[bit / 64] >> (bit % 64) & 1) == 0) continue;
      if (path_end >= gathered && path_end < range_last) gather(key, path_end);
      ++path_end;
    }
    path_view_ = QueryView{v.first_key, static_cast<uint32_t>(path_end), v.pos, nullptr, 0};
    const size_t streams = streams_;
    streams_ = 0;  // nothing to prefetch: what was gathered is in the caches
    path_active_ = true;
    run_pass(t, t + 1, out);
    path_active_ = false;
    streams_ = streams;
  }

  /// Copies K and V of `key` to place `to` of the path, places in ascending order. The keys from the block
  /// that the tree begins in on are in unsealed blocks, which all have one type.
  void gather(size_t key, size_t to) {
    const KvBlockRef& from = unit_.stream->blocks[key / kBlockKeys];
    const size_t b = to / kBlockKeys - path_first_block_;
    const size_t k_bytes = kv_part_bytes(from.k_type, KvPart::kKey, shape_.head_dim);
    const size_t v_bytes = kv_part_bytes(from.v_type, KvPart::kValue, shape_.head_dim);
    std::byte* k = reinterpret_cast<std::byte*>(work_.path_keys) + b * k_bytes;
    std::byte* v = reinterpret_cast<std::byte*>(work_.path_values) + b * v_bytes;
    kv_copy(from.k_type, KvPart::kKey, from.k, key % kBlockKeys, k, to % kBlockKeys, 1, shape_.head_dim);
    kv_copy(from.v_type, KvPart::kValue, from.v, key % kBlockKeys, v, to % kBlockKeys, 1, shape_.head_dim);
    const uint32_t earlier = to % kBlockKeys == 0 ? 0 : path_blocks_[b].valid;
    const uint32_t bit = (from.valid >> (key % kBlockKeys) & 1) << (to % kBlockKeys);
    path_blocks_[b] = KvBlockRef{k, v, 0, KeyEncoding::kAbsolute, from.k_type, from.v_type, earlier | bit};
  }
  float* rotated_keys(size_t b) const {
    return work_.keys + (b - first_block_) * kBlockKeys * shape_.head_dim;
  }

  /// Expands and rotates the range's unrotated K parts, once for all passes.
  void rotate_keys() {
    const size_t first = std::max(unit_.begin_key, range_begin_) / kBlockKeys;
    for (size_t b = first; b * kBlockKeys < range_end_; ++b) {
      if (block(b).encoding != KeyEncoding::kUnrotated) continue;
      float* keys = rotated_keys(b);
      kernels_.expand_keys[index_of(block(b).k_type)](block(b).k, shape_.head_dim, keys);
      kernels_.rotate_keys(keys, args_.rope->block_cos(), args_.rope->block_sin(), args_.rope->dims(),
                           args_.rope->style() == RopeStyle::kInterleaved);
    }
  }

  /// Tokens whose rows the kernels take at once, and the part of the range at hand that they see.
  struct Pass {
    size_t first, last;              // tokens of the unit
    size_t first_block, last_block;  // the same: they see nothing
    size_t end_key;
    size_t clear_begin, clear_end;  // blocks of whose keys every token sees each that is valid
    bool has(size_t b) const { return first_block <= b && b < last_block; }
    bool sees_all_of(size_t b) const { return clear_begin <= b && b < clear_end; }
  };
  /// Scores of a pass's rows in block b, kScoreStride apart.
  float* scores_of(const Pass& pass, size_t b) const {
    return work_.scores + pass.first * shape_.group * kScoreStride + (b - pass.first_block) * kBlockKeys;
  }

  Pass make_pass(size_t first, size_t last) const {
    size_t begin = range_end_;
    size_t end = range_begin_;
    size_t all_begin = 0;  // keys that every token sees
    size_t all_end = std::numeric_limits<size_t>::max();
    for (size_t t = first; t < last; ++t) {
      const QueryView seen = view(t);
      const size_t see = std::min<size_t>(seen.end_key, range_end_);
      all_begin = std::max<size_t>(all_begin, seen.first_key);
      all_end = std::min(all_end, seen.tree_mask == nullptr ? see : std::min<size_t>(see, seen.tree_begin));
      if (seen.first_key >= see) continue;
      begin = std::min(begin, std::max<size_t>(seen.first_key, range_begin_));
      end = std::max(end, see);
    }
    const size_t last_block = begin >= end ? 0 : (end + kBlockKeys - 1) / kBlockKeys;
    const size_t clear_begin = (all_begin + kBlockKeys - 1) / kBlockKeys;
    const size_t clear_end = std::min(all_end, unit_.stream->keys) / kBlockKeys;
    return {first, last, begin >= end ? 0 : begin / kBlockKeys, last_block, end, clear_begin, clear_end};
  }
  size_t rows_of(const Pass& pass) const { return (pass.last - pass.first) * shape_.group; }

  /// Scores to weights; the sums start at zero.
  void weigh(const Pass& pass, const RowState& out) {
    const size_t row = pass.first * shape_.group;
    const size_t n = (pass.last_block - pass.first_block) * kBlockKeys;
    if (n == 0) {
      std::fill_n(out.max + row, rows_of(pass), kMinusInfinity);
      return;
    }
    kernels_.softmax(scores_of(pass, pass.first_block), rows_of(pass), n, args_.softcap, &out.max[row],
                     &out.sum[row]);
    std::memset(out.acc + row * shape_.dim, 0, rows_of(pass) * shape_.dim * sizeof(float));
    if (has_bias(pass)) std::memset(bias_of(pass), 0, rows_of(pass) * shape_.bias_lanes() * sizeof(float));
  }

  /// Whether values that a pass sees have minima, which are summed up apart.
  bool has_bias(const Pass& pass) const {
    for (size_t b = pass.first_block; b < pass.last_block; ++b) {
      if (is_kivi(block(b).v_type)) return true;
    }
    return false;
  }
  float* bias_of(const Pass& pass) const {
    return work_.bias + pass.first * shape_.group * shape_.bias_lanes();
  }
  void add_bias(const Pass& pass, const RowState& out) {
    if (has_bias(pass)) kernels_.add_kivi_bias(bias_of(pass), rows_of(pass), shape_.dim, acc_of(pass, out));
  }

  /// Adds block b's values, stored as `type` at `part`.
  void add_values(const Pass& pass, size_t b, const void* part, KvType type, const RowState& out,
                  const Prefetch* next) {
    const size_t keys = std::min(kBlockKeys, pass.end_key - b * kBlockKeys);
    if (is_kivi(type)) {
      kernels_.sum_kivi[index_of(type)](part, scores_of(pass, b), rows_of(pass), keys, shape_.dim,
                                        acc_of(pass, out), bias_of(pass), next);
    } else {
      kernels_.weighted_sum[index_of(type)](part, scores_of(pass, b), rows_of(pass), keys, shape_.dim,
                                            acc_of(pass, out), next);
    }
  }
  float* acc_of(const Pass& pass, const RowState& out) const {
    return out.acc + pass.first * shape_.group * shape_.dim;
  }

  /// Tokens [first, last) of the unit over the range at hand, on the stored parts.
  void run_pass(size_t first, size_t last, const RowState& out) {
    const Pass pass = make_pass(first, last);
    const PartRun keys{KvPart::kKey, pass.first_block, pass.last_block};
    for (size_t b = pass.first_block; b < pass.last_block; ++b) {
      const KvBlockRef& ref = block(b);
      if (rotated(ref)) {
        score_block(pass, b, rotated_keys(b), KvType::kF32, nullptr);
      } else {
        score_block(pass, b, ref.k, ref.k_type, prefetch_after(keys, b));
      }
    }
    weigh(pass, out);
    const PartRun values{KvPart::kValue, pass.first_block, pass.last_block};
    for (size_t b = pass.first_block; b < pass.last_block; ++b) {
      add_values(pass, b, block(b).v, block(b).v_type, out, prefetch_after(values, b));
    }
    add_bias(pass, out);
  }

  /// All tokens of the unit over the range at hand, block by block, each part expanded once for all passes.
  void run_tile(const RowState& out) {
    Pass passes[kTileRows];
    size_t count = 0;
    size_t first_block = SIZE_MAX;
    size_t last_block = 0;
    // The 16-bit kernels split rows themselves.
    const size_t step = in_pairs() ? unit_.tokens : shape_.pass_tokens;
    for (size_t t = 0; t < unit_.tokens; t += step) {
      const Pass& pass = passes[count++] = make_pass(t, std::min(t + step, unit_.tokens));
      if (pass.last_block == 0) continue;
      first_block = std::min(first_block, pass.first_block);
      last_block = std::max(last_block, pass.last_block);
    }
    const std::span<const Pass> all(passes, count);
    if (in_pairs() && any_takes_pairs(all)) open_pairs();
    for (size_t b = first_block; b < last_block; ++b) score_tile(all, b);
    for (const Pass& pass : all) weigh(pass, out);
    for (size_t b = first_block; b < last_block; ++b) add_tile_values(all, b, out);
    for (const Pass& pass : all) add_bias(pass, out);
  }

  void score_tile(std::span<const Pass> passes, size_t b) {
    if (in_pairs() && expands(block(b).k_type)) return score_tile_pairs(passes, b);
    const Part keys = expanded_keys(b);
    for (const Pass& pass : passes) {
      if (pass.has(b)) score_block(pass, b, keys.bytes, keys.type, nullptr);
    }
  }
  void add_tile_values(std::span<const Pass> passes, size_t b, const RowState& out) {
    if (in_pairs() && expands(block(b).v_type)) return add_tile_pairs(passes, b, out);
    const Part values = expanded_values(b);
    for (const Pass& pass : passes) {
      if (pass.has(b)) add_values(pass, b, values.bytes, values.type, out, nullptr);
    }
  }

  /// Whether 16-bit arithmetic is asked for and possible.
  bool in_pairs() const { return args_.compute == AttentionCompute::kInt16 && args_.rope == nullptr; }

  bool any_takes_pairs(std::span<const Pass> passes) const {
    bool any = false;
    for_each_run(passes, first_block_, true, [&](const Pass&, const float*) { any = true; });
    return any;
  }

  /// The queries in 16 bits for the range at hand, whose first block says how large each dimension of its
  /// keys is.
  void open_pairs() {
    const KvBlockRef& head = block(first_block_);
    const size_t dim = shape_.head_dim;
    kernels_.key_means[index_of(head.k_type)](head.k, dim, work_.key_means, work_.key_inverses);
    kernels_.query_pairs(work_.query, dim, rows(), dim, work_.key_means, work_.query_pairs);
  }

  void score_tile_pairs(std::span<const Pass> passes, size_t b) {
    const size_t dim = shape_.head_dim;
    bool ready = false;
    for_each_run(passes, b, true, [&](const Pass& run, float* scores) {
      if (!ready) {
        kernels_.key_pairs[index_of(block(b).k_type)](block(b).k, dim, work_.key_inverses, work_.pairs,
                                                      work_.pair_scales);
      }
      ready = true;
      kernels_.scores_pairs(work_.pairs, work_.pair_scales,
                            work_.query_pairs + run.first * shape_.group * pair_query_words(dim),
                            rows_of(run), dim, scores);
    });
    Part keys{nullptr, KvType::kF32};
    for_each_run(passes, b, false, [&](const Pass& run, float* scores) {
      if (keys.bytes == nullptr) keys = expanded_keys(b);
      kernels_.scores[index_of(keys.type)](keys.bytes, work_.query + run.first * shape_.group * dim, dim,
                                           rows_of(run), dim, scores, nullptr);
    });
    for (const Pass& pass : passes) {
      if (pass.has(b)) hide_keys(pass, b);
    }
  }

  /// Tokens that see the whole block take it in 16 bits: its values' scales tell nothing of later keys then.
  /// The others take it in float32.
  void add_tile_pairs(std::span<const Pass> passes, size_t b, const RowState& out) {
    const KvBlockRef& ref = block(b);
    bool ready = false;
    for_each_run(passes, b, true, [&](const Pass& run, const float* p) {
      if (!ready)
        kernels_.value_pairs[index_of(ref.v_type)](ref.v, shape_.dim, work_.pairs, work_.pair_scales);
      ready = true;
      kernels_.weighted_sum_pairs(work_.pairs, work_.pair_scales, p, rows_of(run), shape_.dim,
                                  acc_of(run, out));
    });
    Part values{nullptr, KvType::kF32};
    for_each_run(passes, b, false, [&](const Pass& run, const float* p) {
      if (values.bytes == nullptr) values = expanded_values(b);
      add_by_ends(run, b, p, values, out);
    });
  }
  /// In float32, tokens that see up to the same key at a time: a weight of 0 would not keep a value that is
  /// not finite from those before it.
  void add_by_ends(const Pass& tokens, size_t b, const float* p, const Part& values, const RowState& out) {
    const auto end_of = [&](size_t t) {
      const size_t end = std::min<size_t>(view(t).end_key, unit_.stream->keys);
      return std::min(kBlockKeys, end - std::min(end, b * kBlockKeys));
    };
    for (Pass run = tokens; run.first < tokens.last; run.first = run.last) {
      const size_t keys = end_of(run.first);
      for (run.last = run.first + 1; run.last < tokens.last && end_of(run.last) == keys;) ++run.last;
      const float* weights = p + (run.first - tokens.first) * shape_.group * kScoreStride;
      // Codes come here never: they take no pairs.
      kernels_.weighted_sum[index_of(values.type)](values.bytes, weights, rows_of(run), keys, shape_.dim,
                                                   acc_of(run, out), nullptr);
    }
  }
  /// Calls f(run, scores in block b) for all runs of tokens of a pass that take block b in 16 bits (`pairs`),
  /// or in float32. Those are tokens that see all of it and all of the range's first block; so what comes
  /// after a token cannot reach it through a scale.
  template <class F>
  void for_each_run(std::span<const Pass> passes, size_t b, bool pairs, F f) const {
    for (const Pass& pass : passes) {
      if (!pass.has(b)) continue;
      for (Pass run = pass; run.first < pass.last; run.first = run.last) {
        const bool takes = takes_pairs(pass, run.first, b);
        // Mostly one answer holds for all.
        run.last = takes && pass.sees_all_of(first_block_) && pass.sees_all_of(b) ? pass.last : run.first + 1;
        while (run.last < pass.last && takes_pairs(pass, run.last, b) == takes) ++run.last;
        if (takes == pairs) {
          f(run, scores_of(pass, b) + (run.first - pass.first) * shape_.group * kScoreStride);
        }
      }
    }
  }
  bool takes_pairs(const Pass& pass, size_t token, size_t b) const {
    return expands(block(first_block_).k_type) && sees_whole(pass, token, first_block_) &&
           sees_whole(pass, token, b);
  }
  bool sees_whole(const Pass& pass, size_t token, size_t b) const {
    if (block(b).valid != ~uint32_t{0}) return false;
    return pass.sees_all_of(b) || visible_keys(view(token), unit_.stream->keys, b) == ~uint32_t{0};
  }

  bool rotated(const KvBlockRef& ref) const {
    return args_.rope != nullptr && ref.encoding == KeyEncoding::kUnrotated;
  }
  /// Whether a part of this type is expanded for several passes: codes go to kernels of their own.
  bool expands(KvType type) const { return type == KvType::kF16 || type == KvType::kBF16; }
  Part expanded_keys(size_t b) {
    const KvBlockRef& ref = block(b);
    if (rotated(ref)) return {rotated_keys(b), KvType::kF32};
    if (!expands(ref.k_type)) return {ref.k, ref.k_type};
    kernels_.expand_keys[index_of(ref.k_type)](ref.k, shape_.head_dim, work_.expanded);
    return {work_.expanded, KvType::kF32};
  }
  Part expanded_values(size_t b) {
    const KvBlockRef& ref = block(b);
    if (!expands(ref.v_type)) return {ref.v, ref.v_type};
    kernels_.expand_values[index_of(ref.v_type)](ref.v, shape_.dim, work_.expanded);
    return {work_.expanded, KvType::kF32};
  }

  static size_t index_of(KvType type) { return static_cast<size_t>(type); }
  /// Consecutive K or V parts of one pass.
  struct PartRun {
    KvPart part;
    size_t first, last;  // blocks
  };
  /// The part that is read `ahead` parts after the run's last one: the run's values follow its keys, the next
  /// range's keys follow the values. Null past the end.
  const std::byte* part_after(const PartRun& run, size_t ahead) const {
    if (run.part == KvPart::kKey) return run.first + ahead < run.last ? block(run.first + ahead).v : nullptr;
    return (run.last + ahead) * kBlockKeys < unit_.end_key ? block(run.last + ahead).k : nullptr;
  }
  /// Parts are read in groups of as many as the stream plan says; while a group is read, the next group is
  /// prefetched, a share of each of its parts beside each part. Null when the unit has several passes: then
  /// the caches already hold most of what a pass reads.
  const Prefetch* prefetch_after(const PartRun& run, size_t b) {
    if (streams_ == 0 || unit_.tokens > shape_.pass_tokens) return nullptr;
    const bool keys = run.part == KvPart::kKey;
    const size_t slot = (b - run.first) % streams_;
    const size_t group = b - slot + streams_;
    const KvType type = keys ? block(b).k_type : block(b).v_type;
    const size_t first = slot * kv_part_bytes(type, run.part, shape_.head_dim) / kLine;
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = group + (first + i) % streams_;
      const std::byte* part = at >= run.last ? part_after(run, at - run.last)
                              : keys         ? block(at).k
                                             : block(at).v;
      if (part == nullptr) return nullptr;
      prefetch_.from[i] = reinterpret_cast<const char*>(part) + (first + i) / streams_ * kLine;
    }
    prefetch_.step = 4 / streams_ * kLine;
    return &prefetch_;
  }

  /// Scores of block b, whose keys are stored as `type` at `part`; -infinity where a token does not see.
  void score_block(const Pass& pass, size_t b, const void* part, KvType type, const Prefetch* next) {
    const float* q = work_.query + pass.first * shape_.group * shape_.head_dim;
    if (args_.rope != nullptr) q = turn_queries(block(b), pass.first, pass.last);
    if (type == KvType::kQ8) {
      kernels_.scores_q8(part, codes_of(pass, q), rows_of(pass), shape_.head_dim, scores_of(pass, b), next);
    } else if (is_kivi(type)) {
      kernels_.scores_kivi[index_of(type)](part, kivi_codes_of(pass, q), q, shape_.head_dim, rows_of(pass),
                                           shape_.head_dim, scores_of(pass, b), next);
    } else {
      kernels_.scores[index_of(type)](part, q, shape_.head_dim, rows_of(pass), shape_.head_dim,
                                      scores_of(pass, b), next);
    }
    hide_keys(pass, b);
  }

  /// Sets scores to -infinity where a token does not see.
  void hide_keys(const Pass& pass, size_t b) {
    if (pass.sees_all_of(b) && block(b).valid == ~uint32_t{0}) return;
    float* row = scores_of(pass, b);
    for (size_t t = pass.first; t < pass.last; ++t) {
      const uint32_t bits = visible_keys(view(t), unit_.stream->keys, b) & block(b).valid;
      for (size_t g = 0; g < shape_.group; ++g, row += kScoreStride) {
        for (uint32_t hidden = ~bits; hidden != 0; hidden &= hidden - 1) {
          row[std::countr_zero(hidden)] = kMinusInfinity;
        }
      }
    }
  }

  /// The queries `q` of a pass in 16 bits. Those that serve every block are made once per unit.
  const int32_t* codes_of(const Pass& pass, const float* q) {
    const size_t dim = shape_.head_dim;
    if (q == work_.turned) {
      kernels_.quantize_queries(q, dim, rows_of(pass), dim, work_.turned_codes);
      return work_.turned_codes;
    }
    const size_t row = pass.first * shape_.group;
    if (!codes_ready_) kernels_.quantize_queries(q - row * dim, dim, rows(), dim, work_.query_codes);
    codes_ready_ = true;
    return work_.query_codes + row * q8_query_words(dim);
  }

  /// The same for KIVI parts.
  const int32_t* kivi_codes_of(const Pass& pass, const float* q) {
    const size_t dim = shape_.head_dim;
    if (q == work_.turned) {
      kernels_.kivi_query_codes(q, dim, rows_of(pass), dim, work_.turned_codes);
      return work_.turned_codes;
    }
    const size_t row = pass.first * shape_.group;
    if (!kivi_codes_ready_) kernels_.kivi_query_codes(q - row * dim, dim, rows(), dim, work_.kivi_codes);
    kivi_codes_ready_ = true;
    return work_.kivi_codes + row * kivi_query_words(dim);
  }

  /// Copies the rows of tokens [first, last) to `to`, each turned by its position minus `base`.
  const float* turn(size_t first, size_t last, int32_t base, float* to) {
    const size_t row_floats = shape_.group * shape_.head_dim;
    std::memcpy(to, work_.query + first * row_floats, (last - first) * row_floats * sizeof(float));
    for (size_t t = first; t < last; ++t) {
      args_.rope->row(view(t).pos - base, work_.rope_row);
      args_.rope->rotate_by(work_.rope_row, to + (t - first) * row_floats, shape_.group, shape_.head_dim);
    }
    return to;
  }

  /// The queries as this block's keys need them: turned by the position itself, or by its distance to the
  /// block's first slot.
  const float* turn_queries(const KvBlockRef& ref, size_t first, size_t last) {
    if (ref.encoding != KeyEncoding::kAbsolute) return turn(first, last, ref.base_pos, work_.turned);
    if (!absolute_ready_) turn(0, unit_.tokens, 0, work_.absolute);
    absolute_ready_ = true;
    return work_.absolute + first * shape_.group * shape_.head_dim;
  }

  const AttentionArgs& args_;
  const Shape& shape_;
  const AttentionKernels& kernels_;
  Workspace work_;
  Unit unit_{};
  size_t range_begin_ = 0;  // keys of the range at hand, as far as the unit sees
  size_t range_end_ = 0;
  size_t first_block_ = 0;  // of the range
  bool absolute_ready_ = false;
  bool codes_ready_ = false;
  bool kivi_codes_ready_ = false;
  bool path_active_ = false;  // a path of a token tree is at hand: what follows is in use
  size_t path_first_block_ = 0;
  KvBlockRef path_blocks_[kBlocksPerRange] = {};
  QueryView path_view_{};
  size_t streams_;  // parts that are prefetched at once: 0, 1, 2 or 4
  Prefetch prefetch_{};
};

}  // namespace isthmus::attention_unit
