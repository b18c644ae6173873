#include "engine/schedule.h"

#include <algorithm>

namespace isthmus {

unsigned aged_level(Priority priority, std::chrono::nanoseconds waited, std::chrono::nanoseconds patience) {
  const auto level = static_cast<unsigned>(priority);
  if (patience.count() <= 0 || waited.count() <= 0) return level;
  const auto risen = static_cast<uint64_t>(waited / patience);
  return risen >= level ? 0 : level - static_cast<unsigned>(risen);
}

void share_budget(std::span<const size_t> wanted, size_t budget, std::vector<size_t>& shares) {
  shares.assign(wanted.size(), 0);
  size_t even = budget / 4;
  for (size_t i = 0; i < wanted.size(); ++i) {
    shares[i] = std::min(wanted[i], even / (wanted.size() - i));
    even -= shares[i];
    budget -= shares[i];
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const size_t more = std::min(wanted[i] - shares[i], budget);
    shares[i] += more;
    budget -= more;
  }
}

}  // namespace isthmus
