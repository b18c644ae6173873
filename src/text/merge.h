// Pair merging, the heart of both kinds of BPE: the best pair of neighbours is joined until none is left.
//
// The best pair is the one with the lowest rank, and of equal ranks the leftmost. Short words take the plain
// loop over all pairs. Long ones keep the places of each rank in a queue, so that the work is about linear in
// the number of symbols, with no limit on the length. A Merger is scratch space: one per thread, reused from
// word to word.
#pragma once

#include <cstdint>
#include <vector>

#include "text/rank_queue.h"
#include "text/tokenizer.h"

namespace isthmus::tok {

/// A stretch of the text being merged; `id` is its token, or -1 when the vocabulary has none.
struct Symbol {
  uint32_t begin;
  uint32_t length;
  TokenId id;
};

/// What two neighbours become; rank kNoMerge: nothing.
struct Joined {
  uint32_t rank;
  TokenId id;
};
constexpr uint32_t kNoMerge = 0xFFFFFFFF;

class Merger {
 public:
  std::vector<Symbol>& symbols() { return symbols_; }

  /// Merges symbols() in place. `join` is a function from two neighbouring Symbols to Joined.
  template <class Join>
  void run(const Join& join) {
    if (symbols_.size() < 2) return;
    links_.resize(symbols_.size());
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) links_[i].joined = join(symbols_[i], symbols_[i + 1]);
    links_.back().joined = {kNoMerge, -1};
    if (symbols_.size() <= kShort) {
      run_short(join);
    } else {
      run_long(join);
    }
  }

 private:
  // Up to here the quadratic loop is faster than a heap.
  static constexpr size_t kShort = 40;
  static constexpr uint32_t kEnd = 0xFFFFFFFF;
  struct Link {
    Joined joined;  // with the next symbol
    uint32_t previous;
    uint32_t next;
  };

  template <class Join>
  void run_short(const Join& join) {
    size_t count = symbols_.size();
    while (true) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < count; ++i) {
        if (links_[i].joined.rank < links_[best].joined.rank) best = i;
      }
      if (links_[best].joined.rank == kNoMerge) break;
      symbols_[best].length += symbols_[best + 1].length;
      symbols_[best].id = links_[best].joined.id;
      --count;
      for (size_t i = best + 1; i < count; ++i) {
        symbols_[i] = symbols_[i + 1];
        links_[i].joined = links_[i + 1].joined;
      }
      links_[best].joined =
          best + 1 < count ? join(symbols_[best], symbols_[best + 1]) : Joined{kNoMerge, -1};
      if (best > 0) links_[best - 1].joined = join(symbols_[best - 1], symbols_[best]);
    }
    symbols_.resize(count);
  }

  void push(uint32_t at) {
    if (links_[at].joined.rank != kNoMerge) queue_.push(links_[at].joined.rank, at);
  }

  template <class Join>
  void run_long(const Join& join) {
    const auto count = static_cast<uint32_t>(symbols_.size());
    queue_.clear();
    for (uint32_t i = 0; i < count; ++i) {
      links_[i].previous = i == 0 ? kEnd : i - 1;
      links_[i].next = i + 1 == count ? kEnd : i + 1;
      push(i);
    }
    uint32_t rank, at;
    while (queue_.pop(rank, at)) {
      // An entry is stale when its symbol is gone or now has another pair to its right.
      if (symbols_[at].length != 0 && links_[at].joined.rank == rank) join_at(at, join);
    }
    size_t kept = 0;
    for (const Symbol& symbol : symbols_) {
      if (symbol.length != 0) symbols_[kept++] = symbol;
    }
    symbols_.resize(kept);
  }

  template <class Join>
  void join_at(uint32_t at, const Join& join) {
    const uint32_t right = links_[at].next;
    symbols_[at].length += symbols_[right].length;
    symbols_[at].id = links_[at].joined.id;
    symbols_[right].length = 0;
    const uint32_t after = links_[right].next;
    links_[at].next = after;
    links_[at].joined = {kNoMerge, -1};
    if (after != kEnd) {
      links_[after].previous = at;
      links_[at].joined = join(symbols_[at], symbols_[after]);
    }
    if (const uint32_t before = links_[at].previous; before != kEnd) {
      links_[before].joined = join(symbols_[before], symbols_[at]);
      push(before);
    }
    push(at);
  }

  std::vector<Symbol> symbols_;
  std::vector<Link> links_;
  RankQueue queue_;
};

}  // namespace isthmus::tok
