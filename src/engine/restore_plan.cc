#include "engine/restore_plan.h"

#include <algorithm>
#include <numeric>

namespace isthmus {
namespace {

constexpr double kNewest = 0.3;  // weight of the newest measurement

void blend(double& value, double measured) { value += kNewest * (measured - value); }

/// Expected squared error of a code, a quarter for each bit more.
double code_error(int bits) {
  double out = 1;
  for (int i = 0; i < bits; ++i) out /= 4;
  return out;
}

}  // namespace

void RestoreSpeeds::computed(size_t tokens, double seconds) {
  if (tokens > 0) blend(compute_per_token, seconds / static_cast<double>(tokens));
}

void RestoreSpeeds::read(size_t records, uint64_t bytes, double seconds) {
  if (records == 0 || bytes == 0) return;
  // Split as the two are expected to share it.
  const double expected =
      read_per_record * static_cast<double>(records) + read_per_byte * static_cast<double>(bytes);
  const double factor = seconds / expected;
  blend(read_per_record, read_per_record * factor);
  blend(read_per_byte, read_per_byte * factor);
}

double restore_seconds(std::span<const MissingPart> missing, size_t computed, const RestoreSpeeds& speeds) {
  double compute = 0;
  double after = 0;  // computing that waits for what is read
  double read = 0;
  for (size_t i = 0; i < missing.size(); ++i) {
    const MissingPart& part = missing[i];
    const double cost = speeds.compute_per_token * static_cast<double>(part.tokens);
    if (i < computed) {
      compute += cost;
    } else if (part.records == 0) {
      after += cost;
    } else {
      read += speeds.read_per_record * static_cast<double>(part.records) +
              speeds.read_per_byte * static_cast<double>(part.bytes);
    }
  }
  return std::max(compute, read) + after;
}

size_t plan_restore(std::span<const MissingPart> missing, const RestoreSpeeds& speeds) {
  size_t best = 0;
  double least = restore_seconds(missing, 0, speeds);
  for (size_t computed = 1; computed <= missing.size(); ++computed) {
    const double seconds = restore_seconds(missing, computed, speeds);
    if (seconds < least) {
      least = seconds;
      best = computed;
    }
  }
  return best;
}

std::vector<int> bits_by_density(std::span<const double> density) {
  const size_t n = density.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return density[a] > density[b]; });
  // `high` parts of 8 bits and twice as many of 2 keep the mean.
  size_t best = 0;
  double gain = 0;
  double least = 0;
  for (size_t high = 1; 3 * high <= n; ++high) {
    gain -= density[order[high - 1]] * (code_error(4) - code_error(8));
    for (size_t i = n - 2 * high; i < n - 2 * (high - 1); ++i) {
      gain += density[order[i]] * (code_error(2) - code_error(4));
    }
    if (gain < least) {
      least = gain;
      best = high;
    }
  }
  std::vector<int> out(n, 4);
  for (size_t i = 0; i < best; ++i) out[order[i]] = 8;
  for (size_t i = n - 2 * best; i < n; ++i) out[order[i]] = 2;
  return out;
}

}  // namespace isthmus
