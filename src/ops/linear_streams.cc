#include "ops/linear_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <vector>

#include "ops/aligned_bytes.h"

namespace isthmus {
namespace {

std::atomic<size_t> plan_panels{StreamPlan{}.panels};
std::atomic<size_t> plan_prefetch{StreamPlan{}.prefetch_bytes};
std::atomic<double> plan_speed{0};

/// The default first.
constexpr StreamPlan kCandidates[] = {{4, 1024}, {1, 0}, {1, 2048}, {2, 1024}, {4, 0}, {4, 2304}};
constexpr size_t kCandidateCount = std::size(kCandidates);
/// What another plan must gain over the default to be chosen: less is noise.
constexpr double kClearly = 0.9;
constexpr int kRounds = 3;
constexpr double kMostSeconds = 0.04;  // of one candidate's products

constexpr size_t kProbeCols = 1024;
constexpr size_t kProbeBytes = 96u << 20;
/// Fewer weights than this may stay in the caches of a small machine.
constexpr size_t kLeastBytes = 48u << 20;

/// The weights that are walked, and one row of activations for each width.
class Probe {
 public:
  static Result<Probe> create(std::span<const PackedMatrix* const> weights) {
    Probe probe;
    size_t rows = 0;
    size_t cols = 0;
    for (const PackedMatrix* w : weights) {
      if (probe.bytes_ >= kProbeBytes) break;
      probe.weights_.push_back(w);
      probe.bytes_ += panel_count(w->rows) * panel_bytes(w->format, w->cols);
      rows = std::max(rows, w->rows);
      cols = std::max(cols, w->cols);
    }
    if (probe.bytes_ < kLeastBytes) return failed_precondition("too few weights to measure memory by");
    probe.row_.assign(cols, 1.0F);
    probe.out_.resize(rows);
    probe.records_ = aligned_bytes(Activations::bytes(1, cols, Compute::kInt16), kVectorBytes);
    if (probe.records_ == nullptr) return resource_exhausted("no memory for the bandwidth probe");
    return probe;
  }
  size_t bytes() const { return bytes_; }

  /// Seconds of all products under the plan in use.
  double time(ThreadPool& pool) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](Worker& worker) {
      for (const PackedMatrix* w : weights_) {
        const Activations x(row_.data(), w->cols, 1, w->cols, Compute::kInt16, records_.get());
        if (worker.index() == 0) quantize_activations(x, 0, 1);
        worker.barrier();
        const LinearTask task{w, out_.data(), w->rows};
        linear({&task, 1}, x, worker);
        worker.barrier();
      }
    });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  std::vector<const PackedMatrix*> weights_;
  size_t bytes_ = 0;
  std::vector<float> row_;
  std::vector<float> out_;
  AlignedBytes records_;
};

Result<StreamPlan> compare(Probe& probe, ThreadPool& pool) {
  double least[kCandidateCount];
  std::fill_n(least, kCandidateCount, 1e9);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kCandidateCount; ++i) {
      set_stream_plan(kCandidates[i]);
      least[i] = std::min(least[i], probe.time(pool));
      if (least[i] > kMostSeconds)
        return deadline_exceeded("walking the weights once takes too long to compare");
    }
  }
  const size_t best = static_cast<size_t>(std::min_element(least, least + kCandidateCount) - least);
  const size_t chosen = least[best] < kClearly * least[0] ? best : 0;
  StreamPlan plan = kCandidates[chosen];
  plan.gb_per_s = static_cast<double>(probe.bytes()) / least[chosen] * 1e-9;
  return plan;
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

bool is_stream_candidate(const StreamPlan& plan) {
  return std::any_of(std::begin(kCandidates), std::end(kCandidates), [&](const StreamPlan& known) {
    return known.panels == plan.panels && known.prefetch_bytes == plan.prefetch_bytes;
  });
}

Result<StreamPlan> measure_streams(std::span<const PackedMatrix* const> weights, ThreadPool& pool) {
  ISTHMUS_ASSIGN_OR_RETURN(Probe probe, Probe::create(weights));
  const StreamPlan before = stream_plan();
  auto plan = compare(probe, pool);
  set_stream_plan(before);
  return plan;
}

Result<StreamPlan> measure_streams(ThreadPool& pool) {
  const size_t bytes_per_panel = panel_bytes(PackFormat::kQ4_0, kProbeCols);
  const size_t rows = (kProbeBytes + bytes_per_panel - 1) / bytes_per_panel * kPanelRows;
  const size_t bytes = panel_count(rows) * bytes_per_panel;
  const AlignedBytes weights = aligned_bytes(bytes, 2u << 20);
  if (weights == nullptr) {
    return resource_exhausted(fmt::format("no memory for the {} MiB bandwidth probe", bytes >> 20));
  }
  pool.run([&](Worker& worker) {  // each thread touches the pages that it will read
    const auto [first, last] = worker.range(bytes, 4096);
    std::memset(weights.get() + first, 0x11, last - first);
  });
  const PackedMatrix matrix{PackFormat::kQ4_0, rows, kProbeCols, weights.get()};
  const PackedMatrix* const all[] = {&matrix};
  return measure_streams(all, pool);
}

}  // namespace isthmus
