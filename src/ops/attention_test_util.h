// What the tests of attention share: KV of one sequence, batches that are plain, random or hostile, and a
// slow attention in float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/isa.h"
#include "ops/attention.h"

namespace isthmus::attention_testing {

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, AlignedFree>;
inline Bytes aligned_bytes(size_t n) {
  const size_t whole = std::max<size_t>(64, (n + 63) / 64 * 64);
  Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(64, whole)));
  std::memset(bytes.get(), 0xff, whole);  // NaN in every format: unwritten slots must not be seen
  return bytes;
}

inline std::vector<float> gaussian_floats(size_t n, uint32_t seed, float spread = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

struct Geometry {
  size_t n_heads = 3;
  size_t n_kv_heads = 1;
  size_t head_dim = 64;
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
};

/// One sequence's KV: unrotated keys as floats beside the stored blocks.
class Kv {
 public:
  /// `mixed`: block b gets types of its own instead of the geometry's.
  Kv(const Geometry& g, size_t keys, uint32_t seed, bool mixed = false)
      : g_(g), keys_(keys), mixed_(mixed), hidden_(keys) {
    rows_k_ = gaussian_floats(g.n_kv_heads * keys * g.head_dim, seed);
    rows_v_ = gaussian_floats(g.n_kv_heads * keys * g.head_dim, seed + 1);
    blocks_.resize(g.n_kv_heads);
    const size_t n = (keys + kBlockKeys - 1) / kBlockKeys;
    for (size_t h = 0; h < g.n_kv_heads; ++h) {
      for (size_t b = 0; b < n; ++b) add_block(h);
    }
    for (size_t h = 0; h < g.n_kv_heads; ++h) streams_.push_back({blocks_[h], keys, 0});
  }

  /// Stores all keys; `encoding(block)` says how, `rope` may be null when all are to be stored as they are.
  void store(const std::function<KeyEncoding(size_t)>& encoding, const RopeTable* rope) {
    std::vector<float> row(g_.head_dim);
    for (size_t h = 0; h < g_.n_kv_heads; ++h) {
      for (size_t j = 0; j < keys_; ++j) {
        KvBlockRef& block = blocks_[h][j / kBlockKeys];
        const size_t slot = j % kBlockKeys;
        block.base_pos = static_cast<int32_t>(j - slot);
        block.encoding = encoding(j / kBlockKeys);
        std::copy_n(key(h, j), g_.head_dim, row.begin());
        if (rope != nullptr && block.encoding != KeyEncoding::kUnrotated) {
          const size_t pos = block.encoding == KeyEncoding::kAbsolute ? j : slot;
          rope->rotate(static_cast<int32_t>(pos), row.data(), 1, g_.head_dim);
        }
        kv_write(block.k_type, KvPart::kKey, const_cast<std::byte*>(block.k), slot, row.data(), g_.head_dim);
        kv_write(block.v_type, KvPart::kValue, const_cast<std::byte*>(block.v), slot, value(h, j),
                 g_.head_dim);
      }
    }
    encode_full_blocks();
  }
  void store_plain() {
    store([](size_t) { return KeyEncoding::kAbsolute; }, nullptr);
  }

  /// Takes a key out of all heads' valid sets.
  void hide(size_t j) {
    hidden_[j] = true;
    for (auto& head : blocks_) head[j / kBlockKeys].valid &= ~(1U << (j % kBlockKeys));
  }
  bool hidden(size_t j) const { return hidden_[j]; }
  /// Gives up the first `n` blocks of a head.
  void remove(size_t head, size_t n) {
    streams_[head].blocks = streams_[head].blocks.subspan(n);
    streams_[head].keys -= n * kBlockKeys;
    streams_[head].removed += n * kBlockKeys;
  }

  const float* key(size_t head, size_t j) const { return rows_k_.data() + (head * keys_ + j) * g_.head_dim; }
  const float* value(size_t head, size_t j) const {
    return rows_v_.data() + (head * keys_ + j) * g_.head_dim;
  }
  std::span<const KvStreamRef> streams() const { return streams_; }
  size_t keys() const { return keys_; }
  std::vector<KvBlockRef>& blocks(size_t head) { return blocks_[head]; }

 private:
  static KvType slot_type(KvType type) { return is_kivi(type) ? KvType::kF32 : type; }
  /// Geometries of KIVI types: all blocks but the last one, where it is part full.
  void encode_full_blocks() {
    for (auto& head : blocks_) {
      for (size_t b = 0; b < keys_ / kBlockKeys; ++b) {
        encode(KvPart::kKey, g_.k_type, head[b].k, head[b].k_type);
        encode(KvPart::kValue, g_.v_type, head[b].v, head[b].v_type);
      }
    }
  }
  void encode(KvPart part, KvType type, const std::byte*& bytes, KvType& now) {
    if (!is_kivi(type) || mixed_) return;
    memory_.push_back(aligned_bytes(kv_part_bytes(type, part, g_.head_dim)));
    kv_encode(now, part, bytes, type, memory_.back().get(), g_.head_dim);
    bytes = memory_.back().get();
    now = type;
  }
  void add_block(size_t head) {
    const size_t b = blocks_[head].size();
    KvBlockRef block;
    block.k_type = mixed_ ? static_cast<KvType>(b % kSlotKvTypes) : slot_type(g_.k_type);
    block.v_type = mixed_ ? static_cast<KvType>((b + b / kSlotKvTypes) % kSlotKvTypes) : slot_type(g_.v_type);
    memory_.push_back(aligned_bytes(kv_part_bytes(block.k_type, KvPart::kKey, g_.head_dim)));
    block.k = memory_.back().get();
    memory_.push_back(aligned_bytes(kv_part_bytes(block.v_type, KvPart::kValue, g_.head_dim)));
    block.v = memory_.back().get();
    blocks_[head].push_back(block);
  }

  Geometry g_;
  size_t keys_;
  bool mixed_;
  std::vector<bool> hidden_;
  std::vector<float> rows_k_, rows_v_;  // [kv head][key][head_dim]
  std::vector<std::vector<KvBlockRef>> blocks_;
  std::vector<KvStreamRef> streams_;
  std::vector<Bytes> memory_;
};

inline bool visible(const QueryView& view, size_t keys, size_t j) {
  if (j < view.first_key || j >= view.end_key || j >= keys) return false;
  if (view.tree_mask == nullptr || j < view.tree_begin) return true;
  const size_t bit = j - view.tree_begin;
  return (view.tree_mask[bit / 64] >> (bit % 64) & 1) != 0;
}

inline QueryView causal(size_t pos) {
  return {0, static_cast<uint32_t>(pos + 1), static_cast<int32_t>(pos), nullptr, 0};
}

struct Batch {
  Geometry g;
  float scale = 0.125f;
  float softcap = 0.0f;
  std::vector<Kv*> kvs;
  std::vector<std::vector<QueryView>> views;  // per sequence
  std::vector<float> q;                       // [token][n_heads * head_dim]
  const RopeTable* rope = nullptr;
  AttentionCompute compute = AttentionCompute::kF32;

  size_t row() const { return g.n_heads * g.head_dim; }
  size_t tokens() const {
    size_t n = 0;
    for (const auto& v : views) n += v.size();
    return n;
  }
};

inline AttentionArgs args_of(const Batch& batch, std::vector<AttentionSeq>& seqs, float* out) {
  seqs.clear();
  size_t first = 0;
  for (size_t s = 0; s < batch.views.size(); ++s) {
    seqs.push_back({first, batch.views[s].size(), batch.kvs[s]->streams(), batch.views[s]});
    first += batch.views[s].size();
  }
  AttentionArgs args{};
  args.q = batch.q.data();
  args.ldq = args.ldo = batch.row();
  args.out = out;
  args.n_heads = batch.g.n_heads;
  args.n_kv_heads = batch.g.n_kv_heads;
  args.head_dim = batch.g.head_dim;
  args.scale = batch.scale;
  args.softcap = batch.softcap;
  args.seqs = seqs;
  args.rope = batch.rope;
  args.compute = batch.compute;
  return args;
}

/// Runs on `threads` threads, the scratch used twice to see that the counters come back to zero.
inline std::vector<float> run(const Batch& batch, size_t threads = 1,
                              const AttentionKernels* kernels = nullptr) {
  std::vector<float> out(batch.tokens() * batch.row(), -77.0f);
  std::vector<AttentionSeq> seqs;
  AttentionArgs args = args_of(batch, seqs, out.data());
  args.kernels = kernels;
  Bytes scratch = aligned_bytes(attention_scratch_bytes(args, threads));
  std::memset(scratch.get(), 0, attention_counter_bytes());
  std::vector<float> first;
  for (int repeat = 0; repeat < (threads > 1 ? 2 : 1); ++repeat) {
    std::fill(out.begin(), out.end(), -77.0f);
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; ++i)
      others.emplace_back([&, i] { attention(args, scratch.get(), i, threads); });
    attention(args, scratch.get(), 0, threads);
    for (std::thread& thread : others) thread.join();
    if (repeat == 0) first = out;
  }
  EXPECT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0);
  for (size_t i = 0; i < attention_counter_bytes(); ++i) EXPECT_EQ(scratch.get()[i], std::byte{0});
  return out;
}

/// Plain float64 attention on unrotated keys; `rope` turns queries and keys by their positions first.
inline std::vector<double> oracle(const Batch& batch, const RopeTable* rope = nullptr) {
  std::vector<double> out(batch.tokens() * batch.row(), 0.0);
  const Geometry& g = batch.g;
  size_t token = 0;
  const auto turned = [&](const float* x, int32_t pos) {
    std::vector<float> y(x, x + g.head_dim);
    if (rope != nullptr) rope->rotate(pos, y.data(), 1, g.head_dim);
    return y;
  };
  for (size_t s = 0; s < batch.views.size(); ++s) {
    const Kv& kv = *batch.kvs[s];
    for (const QueryView& view : batch.views[s]) {
      for (size_t h = 0; h < g.n_heads; ++h) {
        const size_t kv_head = h / (g.n_heads / g.n_kv_heads);
        const auto q = turned(batch.q.data() + token * batch.row() + h * g.head_dim, view.pos);
        std::vector<double> score(kv.keys(), -HUGE_VAL);
        double top = -HUGE_VAL, sum = 0;
        for (size_t j = 0; j < kv.keys(); ++j) {
          if (!visible(view, kv.keys(), j) || kv.hidden(j)) continue;
          const auto k = turned(kv.key(kv_head, j), static_cast<int32_t>(j));
          double dot = 0;
          for (size_t d = 0; d < g.head_dim; ++d) dot += static_cast<double>(q[d]) * k[d];
          score[j] = dot * batch.scale;
          if (batch.softcap > 0) score[j] = batch.softcap * std::tanh(score[j] / batch.softcap);
          top = std::max(top, score[j]);
        }
        double* o = out.data() + token * batch.row() + h * g.head_dim;
        for (size_t j = 0; j < kv.keys(); ++j) {
          if (score[j] == -HUGE_VAL) continue;
          const double p = std::exp(score[j] - top);
          sum += p;
          for (size_t d = 0; d < g.head_dim; ++d) o[d] += p * static_cast<double>(kv.value(kv_head, j)[d]);
        }
        for (size_t d = 0; sum > 0 && d < g.head_dim; ++d) o[d] /= sum;
      }
      ++token;
    }
  }
  return out;
}

inline double worst_error(const std::vector<float>& got, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - expected[i]);
    worst = error <= worst ? worst : error;  // a NaN error stays
    if (std::isnan(error)) return error;
  }
  return worst;
}

inline void expect_same(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

/// A batch with one sequence of `keys` keys whose last `tokens` tokens ask.
struct Single {
  Single(const Geometry& g, size_t keys, size_t tokens, uint32_t seed, bool mixed = false)
      : kv(g, keys, seed, mixed) {
    batch.g = g;
    batch.scale = 1.0f / std::sqrt(static_cast<float>(g.head_dim));
    batch.kvs = {&kv};
    batch.views.emplace_back();
    for (size_t t = 0; t < tokens; ++t) batch.views[0].push_back(causal(keys - tokens + t));
    batch.q = gaussian_floats(tokens * batch.row(), seed + 7);
  }
  Kv kv;
  Batch batch;
};

/// A random batch: several sequences, chunks and single tokens, windows, trees, rows that see nothing.
struct Mixed {
  explicit Mixed(uint32_t seed) : rng(seed) {
    const size_t dims[] = {64, 80, 96, 128};
    batch.g = {1, 1 + pick(3), dims[pick(4)], type(), type()};
    batch.g.n_heads = batch.g.n_kv_heads * (1 + pick(8));
    batch.softcap = pick(3) == 0 ? 5.0f : 0.0f;
    for (size_t s = 0, n = 1 + pick(4); s < n; ++s) add_sequence(seed + static_cast<uint32_t>(s) * 10);
    batch.q = gaussian_floats(batch.tokens() * batch.row(), seed + 5);
  }

  size_t pick(size_t n) { return rng() % n; }
  KvType type() { return static_cast<KvType>(pick(kSlotKvTypes)); }

  void add_sequence(uint32_t seed) {
    const size_t keys = 1 + pick(900);
    const size_t tokens = std::min(keys, pick(2) == 0 ? 1 + pick(4) : 1 + pick(70));
    kvs.push_back(std::make_unique<Kv>(batch.g, keys, seed));
    kvs.back()->store_plain();
    batch.kvs.push_back(kvs.back().get());
    auto& views = batch.views.emplace_back();
    const size_t kind = pick(4);
    const size_t begin = keys - tokens;
    for (size_t t = 0; t < tokens; ++t) {
      QueryView view = causal(begin + t);
      if (kind == 1) view.first_key = static_cast<uint32_t>(view.end_key > 100 ? view.end_key - 100 : 0);
      if (kind == 2) {  // a random tree over the new tokens
        auto& mask = masks.emplace_back(std::make_unique<std::vector<uint64_t>>((tokens + 63) / 64));
        for (size_t j = 0; j <= t; ++j) {
          if (j == t || pick(2) == 0) (*mask)[j / 64] |= uint64_t{1} << (j % 64);
        }
        view.end_key = static_cast<uint32_t>(keys);
        view.tree_mask = mask->data();
        view.tree_begin = static_cast<uint32_t>(begin);
      }
      if (kind == 3 && pick(5) == 0) view.end_key = view.first_key;  // sees nothing
      views.push_back(view);
    }
  }

  std::mt19937 rng;
  Batch batch;
  std::vector<std::unique_ptr<Kv>> kvs;
  std::vector<std::unique_ptr<std::vector<uint64_t>>> masks;
};

inline void expect_same_everywhere(const Batch& batch, const std::vector<float>& reference,
                                   const char* what) {
  for (const Isa isa : available_isas()) {
    for (const size_t threads : {1u, 3u})
      expect_same(run(batch, threads, &attention_kernels_for(isa)), reference, what);
  }
}

inline RopeTable make_rope(RopeStyle style, size_t dims, bool yarn) {
  RopeParams params;
  params.dims = dims;
  params.style = style;
  if (yarn) {
    params.scaling = RopeScaling::kYarn;
    params.factor = 2.0;
    params.original_context = 512;
  }
  return std::move(RopeTable::create(params, 2048)).value();
}

/// Each token alone has the bits that it has in the batch.
inline void expect_same_token_by_token(const Batch& batch) {
  const auto together = run(batch);
  size_t token = 0;
  for (size_t s = 0; s < batch.views.size(); ++s) {
    for (const QueryView& view : batch.views[s]) {
      Batch one = batch;
      one.kvs = {batch.kvs[s]};
      one.views = {{view}};
      const auto row = batch.q.begin() + static_cast<std::ptrdiff_t>(token * batch.row());
      one.q.assign(row, row + static_cast<std::ptrdiff_t>(batch.row()));
      const auto alone = run(one);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + token * one.row(), one.row() * sizeof(float)), 0)
          << token;
      ++token;
    }
  }
}

}  // namespace isthmus::attention_testing
