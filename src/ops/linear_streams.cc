#include "ops/linear_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "ops/aligned_bytes.h"
#include "ops/linear.h"

namespace isthmus {
namespace {

std::atomic<size_t> plan_panels{StreamPlan{}.panels};
std::atomic<size_t> plan_prefetch{StreamPlan{}.prefetch_bytes};
std::atomic<double> plan_speed{0};

constexpr StreamPlan kCandidates[] = {{1, 0}, {1, 2048}, {2, 1024}, {4, 0}, {4, 1024}, {4, 2304}};

constexpr size_t kProbeCols = 1024;
constexpr size_t kProbeBytes = 96u << 20;

/// Seconds of one product over the whole probe matrix under the plan in use.
double time_product(const PackedMatrix& matrix, const Activations& x, float* y, ThreadPool& pool) {
  const LinearTask task{&matrix, y, matrix.rows};
  const auto start = std::chrono::steady_clock::now();
  pool.run([&](Worker& worker) { linear({&task, 1}, x, worker); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

StreamPlan stream_plan() {
  return {plan_panels.load(std::memory_order_relaxed), plan_prefetch.load(std::memory_order_relaxed),
          plan_speed.load(std::memory_order_relaxed)};
}

void set_stream_plan(const StreamPlan& plan) {
  plan_panels.store(plan.panels, std::memory_order_relaxed);
  plan_prefetch.store(plan.prefetch_bytes, std::memory_order_relaxed);
  plan_speed.store(plan.gb_per_s, std::memory_order_relaxed);
}

Result<StreamPlan> measure_streams(ThreadPool& pool) {
  const size_t bytes_per_panel = panel_bytes(PackFormat::kQ4_0, kProbeCols);
  const size_t rows = kProbeBytes / bytes_per_panel * kPanelRows;
  const AlignedBytes weights = aligned_bytes(kProbeBytes, 2u << 20);
  if (weights == nullptr) {
    return resource_exhausted(fmt::format("no memory for the {} MiB bandwidth probe", kProbeBytes >> 20));
  }
  pool.run([&](Worker& worker) {  // each thread touches the pages that it will read
    const auto [first, last] = worker.range(kProbeBytes, 4096);
    std::memset(weights.get() + first, 0x11, last - first);
  });
  const std::vector<float> row(kProbeCols, 1.0f);
  std::vector<float> y(rows);
  const size_t x_bytes = Activations::bytes(1, kProbeCols, Compute::kInt16);
  const AlignedBytes memory = aligned_bytes(x_bytes, kVectorBytes);
  if (memory == nullptr) return resource_exhausted("no memory for the bandwidth probe");
  const Activations x(row.data(), kProbeCols, 1, kProbeCols, Compute::kInt16, memory.get());
  quantize_activations(x, 0, 1);

  const PackedMatrix matrix{PackFormat::kQ4_0, rows, kProbeCols, weights.get()};
  const StreamPlan before = stream_plan();
  StreamPlan best = before;
  double best_seconds = 1e9;
  for (int round = 0; round < 2; ++round) {
    for (const StreamPlan& candidate : kCandidates) {
      set_stream_plan(candidate);
      const double seconds = time_product(matrix, x, y.data(), pool);
      if (seconds >= best_seconds) continue;
      best_seconds = seconds;
      best = candidate;
    }
  }
  set_stream_plan(before);
  const size_t bytes = rows / kPanelRows * bytes_per_panel;
  best.gb_per_s = static_cast<double>(bytes) / best_seconds * 1e-9;
  return best;
}

}  // namespace isthmus
