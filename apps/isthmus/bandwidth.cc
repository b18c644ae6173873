#include "apps/isthmus/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "apps/isthmus/figures.h"
#include "ops/linear_streams.h"
#include "threads/pool.h"

namespace isthmus::cli {
namespace {

constexpr size_t kProbeBytes = size_t{256} << 20;  // larger than the caches of machines that run small models

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
  ISTHMUS_ASSIGN_OR_RETURN(HugeArena buffer, HugeArena::allocate(kProbeBytes));
  std::fill_n(reinterpret_cast<uint64_t*>(buffer.data()), kProbeBytes / sizeof(uint64_t), uint64_t{1});
  return BandwidthProbe(std::move(buffer));
}

double BandwidthProbe::read(size_t threads, size_t streams) const {
  ThreadPool pool(threads);
  const auto* words = reinterpret_cast<const uint64_t*>(buffer_.data());
  const size_t n = kProbeBytes / sizeof(uint64_t);
  std::vector<double> rates;
  std::atomic<uint64_t> sink{0};
  for (int i = 0; i < 5; ++i) {
    const auto start = SteadyClock::now();
    pool.run([&](Worker& worker) {
      const auto [first, last] = worker.range(n, 64);
      sink += read_streams(words, first, last, streams);
    });
    rates.push_back(static_cast<double>(kProbeBytes) / seconds_since(start) / 1e9);
  }
  return quantile(rates, 0.5);
}

Result<double> BandwidthProbe::limit(size_t threads) const {
  double best = 0;
  for (const size_t streams : {1, 2, 4, 8}) best = std::max(best, read(threads, streams));
  ThreadPool pool(threads);
  ISTHMUS_ASSIGN_OR_RETURN(const auto plan, measure_streams(pool));
  return std::max(best, plan.gb_per_s);
}

}  // namespace isthmus::cli
