// Attention alone: one token at a depth (decode) and a prompt chunk at a depth (prefill), for all layers of a
// model, so that the KV comes from memory as it does in a real step. Reports GB/s of KV read, GMAC/s, and
// their share of the float32 peak.
//
//   attention_bench --benchmark_filter=decode
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "ops/attention.h"
#include "ops/machine_limits.h"

namespace isthmus {
namespace {

struct ModelShape {
  size_t layers, n_heads, n_kv_heads, head_dim;
};
constexpr ModelShape kShapes[] = {
    {30, 9, 3, 64},    // SmolLM2-135M
    {24, 14, 2, 64},   // Qwen2.5-0.5B
    {28, 12, 2, 128},  // Qwen2.5-1.5B
    {18, 4, 1, 256},   // Gemma-3-270M
};

struct AlignedFree {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, AlignedFree>;
/// Huge pages where the system gives them, as the block pool does.
Bytes allocate(size_t n) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t whole = (n + kHuge - 1) / kHuge * kHuge;
  Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(kHuge, whole)));
  madvise(bytes.get(), whole, MADV_HUGEPAGE);
  std::memset(bytes.get(), 0, whole);
  return bytes;
}

/// The KV of all layers, block after block as a pool would hand them out: for each token block, each layer,
/// each head.
struct Cache {
  Cache(const ModelShape& m, size_t keys, KvType type) : shape(m) {
    const size_t part = kv_part_bytes(type, KvPart::kKey, m.head_dim);
    const size_t part_v = kv_part_bytes(type, KvPart::kValue, m.head_dim);
    const size_t n_blocks = (keys + kBlockKeys - 1) / kBlockKeys;
    bytes = n_blocks * m.layers * m.n_kv_heads * (part + part_v);
    memory = allocate(bytes);
    blocks.resize(m.layers * m.n_kv_heads);
    std::byte* at = memory.get();
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    std::vector<float> rows(kBlockKeys * m.head_dim);
    for (float& v : rows) v = normal(rng);
    const auto write = [&](KvPart which, std::byte* to) {
      if (!is_kivi(type)) {
        return kv_write_rows(type, which, to, 0, kBlockKeys, rows.data(), m.head_dim, m.head_dim);
      }
      std::vector<std::byte> open(kv_part_bytes(KvType::kF32, which, m.head_dim));
      kv_write_rows(KvType::kF32, which, open.data(), 0, kBlockKeys, rows.data(), m.head_dim, m.head_dim);
      kv_encode(KvType::kF32, which, open.data(), type, to, m.head_dim);
    };
    for (size_t b = 0; b < n_blocks; ++b) {
      for (auto& stream : blocks) {
        write(KvPart::kKey, at);
        write(KvPart::kValue, at + part);
        stream.push_back(
            {at, at + part, static_cast<int32_t>(b * kBlockKeys), KeyEncoding::kAbsolute, type, type});
        at += part + part_v;
      }
    }
    for (const auto& stream : blocks) streams.push_back({stream, keys, 0});
  }

  ModelShape shape;
  size_t bytes = 0;
  Bytes memory{nullptr};
  std::vector<std::vector<KvBlockRef>> blocks;  // [layer * n_kv_heads + head]
  std::vector<KvStreamRef> streams;
};

/// Arguments: shape, depth, tokens, threads, KV type, arithmetic.
void run(benchmark::State& state) {
  const ModelShape shape = kShapes[state.range(0)];
  const size_t depth = static_cast<size_t>(state.range(1));
  const size_t tokens = static_cast<size_t>(state.range(2));
  const size_t threads = static_cast<size_t>(state.range(3));
  const auto type = static_cast<KvType>(state.range(4));
  const Cache cache(shape, depth + tokens, type);
  const size_t row = shape.n_heads * shape.head_dim;
  std::vector<float> q(tokens * row, 0.03f), out(tokens * row);
  std::vector<QueryView> views;
  for (size_t t = 0; t < tokens; ++t) {
    views.push_back({0, static_cast<uint32_t>(depth + t + 1), static_cast<int32_t>(depth + t), nullptr, 0});
  }
  const AttentionHeads heads{shape.n_heads, shape.n_kv_heads, shape.head_dim};
  const Bytes scratch = allocate(attention_scratch_bytes(heads, tokens, depth + tokens, threads));
  ThreadPool pool(threads);
  for (auto _ : state) {
    pool.run([&](Worker& worker) {
      for (size_t layer = 0; layer < shape.layers; ++layer) {
        const AttentionSeq seq{
            0, tokens, {&cache.streams[layer * shape.n_kv_heads], shape.n_kv_heads}, views};
        attention({q.data(),
                   row,
                   out.data(),
                   row,
                   shape.n_heads,
                   shape.n_kv_heads,
                   shape.head_dim,
                   0.125f,
                   0.0f,
                   {&seq, 1},
                   nullptr,
                   nullptr,
                   static_cast<AttentionCompute>(state.range(5))},
                  scratch.get(), worker);
        worker.barrier();
      }
    });
  }
  const double pairs =
      static_cast<double>(tokens) * (static_cast<double>(depth) + 0.5 * (static_cast<double>(tokens) + 1));
  const double macs = 2.0 * pairs * static_cast<double>(row * shape.layers);
  static const double peak = peak_gmacs(Compute::kF32);
  state.counters["of peak, %"] =
      benchmark::Counter(100 * macs / 1e9 / (peak * static_cast<double>(state.range(3))),
                         benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GMAC/s"] = benchmark::Counter(macs / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(cache.bytes) / 1e9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

constexpr int64_t kF32 = 0, kF16 = 1, kBF16 = 2, kQ8 = 3, kKivi8 = 4, kKivi4 = 5, kKivi2 = 6, kKivi1 = 7;

void decode(benchmark::State& state) { run(state); }
BENCHMARK(decode)
    ->ArgNames({"shape", "depth", "tokens", "threads", "type", "int16"})
    ->Args({0, 4096, 1, 1, kF16, 0})
    ->Args({0, 4096, 1, 2, kF16, 0})
    ->Args({0, 4096, 1, 1, kBF16, 0})
    ->Args({0, 4096, 1, 1, kF32, 0})
    ->Args({0, 4096, 1, 1, kQ8, 0})
    ->Args({0, 4096, 1, 2, kQ8, 0})
    ->Args({0, 4096, 1, 1, kKivi8, 0})
    ->Args({0, 4096, 1, 1, kKivi4, 0})
    ->Args({0, 4096, 1, 2, kKivi4, 0})
    ->Args({0, 4096, 1, 1, kKivi2, 0})
    ->Args({0, 4096, 1, 1, kKivi1, 0})
    ->Args({1, 4096, 1, 1, kKivi8, 0})
    ->Args({1, 4096, 1, 1, kKivi4, 0})
    ->Args({1, 4096, 1, 1, kKivi2, 0})
    ->Args({3, 4096, 1, 1, kKivi8, 0})
    ->Args({3, 4096, 1, 1, kKivi4, 0})
    ->Args({3, 4096, 1, 1, kKivi2, 0})
    ->Args({0, 4096, 4, 1, kF16, 0})
    ->Args({1, 4096, 1, 1, kF16, 0})
    ->Args({1, 4096, 1, 1, kQ8, 0})
    ->Args({2, 4096, 1, 1, kF16, 0})
    ->Args({3, 4096, 1, 1, kF16, 0})
    ->Args({3, 4096, 1, 1, kQ8, 0})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void prefill(benchmark::State& state) { run(state); }
BENCHMARK(prefill)
    ->ArgNames({"shape", "depth", "tokens", "threads", "type", "int16"})
    ->Args({0, 0, 512, 1, kF16, 0})
    ->Args({0, 0, 512, 2, kF16, 0})
    ->Args({0, 4096, 512, 1, kF16, 0})
    ->Args({0, 4096, 512, 1, kQ8, 0})
    ->Args({0, 4096, 512, 1, kKivi4, 0})
    ->Args({1, 4096, 512, 1, kF16, 0})
    ->Args({1, 4096, 512, 1, kKivi4, 0})
    ->Args({1, 0, 512, 1, kF16, 0})
    ->Args({0, 0, 512, 1, kF16, 1})
    ->Args({0, 4096, 512, 1, kF16, 1})
    ->Args({1, 0, 512, 1, kF16, 1})
    ->Args({1, 4096, 512, 1, kF16, 1})
    ->Args({2, 0, 512, 1, kF16, 1})
    ->Args({3, 0, 512, 1, kF16, 1})
    ->Args({2, 0, 512, 1, kF16, 0})
    ->Args({3, 0, 512, 1, kF16, 0})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace isthmus

BENCHMARK_MAIN();
