#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace isthmus {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string StopMatcher::push(std::string_view text) {
  if (matched()) return "";
  pending_ += text;
  size_t at = std::string::npos;
  for (const auto& stop : stops_) {
    const size_t found = pending_.find(stop);
    if (found == std::string::npos) continue;
    if (found < at || (found == at && stop.size() > matched_.size())) {
      at = found;
      matched_ = stop;
    }
  }
  const size_t ready = matched() ? at : pending_.size() - held_suffix();
  std::string out = pending_.substr(0, ready);
  pending_.erase(0, matched() ? pending_.size() : ready);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(pending_, {}); }

size_t StopMatcher::held_suffix() const {
  size_t held = 0;
  for (const auto& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > held; --n) {
      if (pending_.compare(pending_.size() - n, n, stop, 0, n) == 0) {
        held = n;
        break;
      }
    }
  }
  return held;
}

}  // namespace isthmus
