// Who goes first, and how much of a prompt a step reads: the rules of a Batcher as pure functions.
//
// A request ranks by its level (0 is best), then by arrival. Its level is its priority; a request that waits
// longer than `patience` rises by one level, again and again, so that no stream of better ones starves it. A
// rank never falls, hence the best of all always gets on.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isthmus {

enum class Priority : uint8_t {
  kInteractive,  // somebody waits for each token
  kBackground,   // somebody waits for the whole
  kBatch,        // whenever there is room
};

struct Rank {
  unsigned level = 0;
  uint64_t arrival = 0;
  auto operator<=>(const Rank&) const = default;  // the better one is the lesser one
};

/// The level of a request of `priority` that has waited for `waited`; `patience` <= 0: it never rises.
unsigned aged_level(Priority priority, std::chrono::nanoseconds waited, std::chrono::nanoseconds patience);

/// Divides a step's budget of prompt tokens among readers that want `wanted` tokens each, best rank first:
/// a quarter evenly, so that a short prompt need not wait for the end of a long one, the rest by rank, so
/// that prompts of one length end one after the other and not all at the end. The sum of `shares` is the
/// lesser of the budget and of what is wanted; the first reader's share is not 0 unless the budget is.
void share_budget(std::span<const size_t> wanted, size_t budget, std::vector<size_t>& shares);

}  // namespace isthmus
