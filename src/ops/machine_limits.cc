#include "ops/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>

#include "kernels/linear_kernels.h"
#include "ops/linear_streams.h"
#include "threads/pool.h"

namespace isthmus {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = size_t{256} << 20;  // larger than the caches of machines that run small models

constexpr size_t kPeakRounds = 50000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Sum of the words in [first, last) read as `streams` ascending streams side by side.
uint64_t read_streams(const uint64_t* words, size_t first, size_t last, size_t streams) {
  const size_t length = (last - first) / streams / 8 * 8;
  uint64_t sums[8] = {};
  for (size_t i = 0; i < length; i += 8) {
    for (size_t s = 0; s < streams; ++s) {
      const uint64_t* at = words + first + s * length + i;
      for (size_t j = 0; j < 8; ++j) sums[j] += at[j];
    }
  }
  return std::accumulate(std::begin(sums), std::end(sums), uint64_t{0});
}

}  // namespace

Result<BandwidthProbe> BandwidthProbe::create() {
  ISTHMUS_ASSIGN_OR_RETURN(HugeArena buffer, HugeArena::allocate(kReadBytes));
  std::fill_n(reinterpret_cast<uint64_t*>(buffer.data()), kReadBytes / sizeof(uint64_t), uint64_t{1});
  return BandwidthProbe(std::move(buffer));
}

double BandwidthProbe::read(size_t threads, size_t streams) const {
  ThreadPool pool(threads);
  const auto* words = reinterpret_cast<const uint64_t*>(buffer_.data());
  const size_t n = kReadBytes / sizeof(uint64_t);
  double rates[5];
  std::atomic<uint64_t> sink{0};
  for (double& rate : rates) {
    const auto start = Clock::now();
    pool.run([&](Worker& worker) {
      const auto [first, last] = worker.range(n, 64);
      sink += read_streams(words, first, last, streams);
    });
    rate = static_cast<double>(kReadBytes) / seconds_since(start) / 1e9;
  }
  std::nth_element(rates, rates + 2, rates + 5);
  return rates[2];
}

Result<double> BandwidthProbe::limit(size_t threads) const {
  double best = 0;
  for (const size_t streams : {1, 2, 4, 8}) best = std::max(best, read(threads, streams));
  ThreadPool pool(threads);
  ISTHMUS_ASSIGN_OR_RETURN(const auto plan, measure_streams(pool));
  return std::max(best, plan.gb_per_s);
}

double peak_gmacs(Compute compute) {
  const PeakKernel kernel = linear_kernels().peak[static_cast<size_t>(compute)];
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    const auto products = static_cast<double>(kernel(kPeakRounds));
    best = std::max(best, products / seconds_since(start) / 1e9);
  }
  return best;
}

}  // namespace isthmus
