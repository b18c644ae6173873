#include "ops/linear_tiles.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "ops/aligned_bytes.h"
#include "ops/linear.h"

namespace isthmus {
namespace {

std::atomic<bool> plan_int8{TilePlan{}.int8};
std::atomic<bool> plan_int16{TilePlan{}.int16};

// One product that stays in the second-level cache, as those of a model's layers do panel by panel.
constexpr size_t kTokens = 4 * kStripTokens;
constexpr size_t kCols = 1024;
constexpr size_t kRowsPerThread = 256;
constexpr int kTileRounds = 4;  // the first one warms up

/// The memory of one timed product.
struct TileProbe {
  AlignedBytes weights;
  AlignedBytes records;
  std::vector<float> x;
  std::vector<float> y;
  PackedMatrix matrix{};

  static Result<TileProbe> create(size_t threads) {
    TileProbe out;
    const size_t rows = threads * kRowsPerThread;
    const size_t bytes = panel_count(rows) * panel_bytes(PackFormat::kQ4_0, kCols);
    out.weights = aligned_bytes(bytes, kVectorBytes);
    out.records = aligned_bytes(Activations::bytes(kTokens, kCols, Compute::kInt16), kVectorBytes);
    if (out.weights == nullptr || out.records == nullptr) {
      return resource_exhausted("no memory to measure tiles with");
    }
    std::memset(out.weights.get(), 0x11, bytes);  // f16 scales of 2^-11, codes of 1
    out.x.assign(kTokens * kCols, 1.0F);
    out.y.resize(kTokens * rows);
    out.matrix = {PackFormat::kQ4_0, rows, kCols, out.weights.get()};
    return out;
  }

  /// 10^9 multiply-accumulates a second of the fastest round.
  double speed(ThreadPool& pool, Compute compute) {
    const Activations acts(x.data(), kCols, kTokens, kCols, compute, records.get());
    quantize_activations(acts, 0, kTokens);
    const LinearTask task{&matrix, y.data(), matrix.rows};
    double least = 1e9;
    for (int round = 0; round < kTileRounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      pool.run([&](Worker& worker) { linear({&task, 1}, acts, worker); });
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      if (round > 0) least = std::min(least, spent.count());
    }
    return static_cast<double>(kTokens * kCols * matrix.rows) / least * 1e-9;
  }
};

}  // namespace

TilePlan tile_plan() {
  return {plan_int8.load(std::memory_order_relaxed), plan_int16.load(std::memory_order_relaxed)};
}

void set_tile_plan(const TilePlan& plan) {
  plan_int8.store(plan.int8, std::memory_order_relaxed);
  plan_int16.store(plan.int16, std::memory_order_relaxed);
}

bool use_int_tiles(Compute compute) {
  return (compute == Compute::kInt16 ? plan_int16 : plan_int8).load(std::memory_order_relaxed);
}

Result<TileSpeeds> measure_tiles(ThreadPool& pool) {
  if (linear_kernels().isa != Isa::kAmx) {
    return failed_precondition("the instruction set in use has no tiles");
  }
  ISTHMUS_ASSIGN_OR_RETURN(TileProbe probe, TileProbe::create(pool.size()));
  const TilePlan before = tile_plan();
  TileSpeeds out;
  set_tile_plan({true, true});
  out.tiles_int8 = probe.speed(pool, Compute::kInt8);
  out.tiles_int16 = probe.speed(pool, Compute::kInt16);
  set_tile_plan({false, false});
  out.vectors_int8 = probe.speed(pool, Compute::kInt8);
  out.vectors_int16 = probe.speed(pool, Compute::kInt16);
  set_tile_plan(before);
  return out;
}

}  // namespace isthmus
