#include "kv/token_positions.h"

#include <algorithm>

namespace isthmus {

size_t TokenPositions::shift_at(size_t token) const {
  const auto after = std::upper_bound(jumps_.begin(), jumps_.end(), token,
                                      [](size_t wanted, const Jump& jump) { return wanted < jump.token; });
  return after == jumps_.begin() ? 0 : std::prev(after)->shift;
}

size_t TokenPositions::first_from(size_t position) const {
  size_t begin = 0;  // of a stretch without gaps
  size_t shift = 0;
  for (const Jump& next : jumps_) {
    const size_t first = position < begin + shift ? begin : position - shift;
    if (first < next.token) return first;
    begin = next.token;
    shift = next.shift;
  }
  return position < begin + shift ? begin : position - shift;
}

void TokenPositions::jump(size_t token, size_t position) {
  const size_t shift = position - token;
  if (shift == shift_at(token)) return;
  if (!jumps_.empty() && jumps_.back().token == token) jumps_.pop_back();
  jumps_.push_back({token, shift});
}

void TokenPositions::cut(size_t length) {
  while (!jumps_.empty() && jumps_.back().token > length) jumps_.pop_back();
}

}  // namespace isthmus
