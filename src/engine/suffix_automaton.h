// A suffix automaton over a growing text of tokens (Blumer et al. 1985): after each token it knows the
// longest suffix of the text that stands in the text a second time, and where.
//
// One token costs amortised O(1). All memory is taken at construction, for a fixed number of tokens; a text
// that is longer has to be started anew by the caller (clear()). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace isthmus {

class SuffixAutomaton {
 public:
  /// For texts of at most `capacity` tokens, 1 to kMostTokens.
  explicit SuffixAutomaton(size_t capacity);
  /// What one of `capacity` tokens takes at most.
  static uint64_t bytes(size_t capacity);
  static constexpr size_t kMostTokens = size_t{1} << 24;

  size_t capacity() const { return capacity_; }
  size_t length() const { return length_; }
  /// Adds a token; needs length() < capacity().
  void push(int32_t token);
  void clear();

  /// A suffix of the text that also ends at an earlier place.
  struct Match {
    size_t length = 0;  // tokens; 0: the newest token is new
    size_t end = 0;     // index of the token behind the earlier place
  };
  /// The longest such suffix. Its place is the most recent one, unless more than kWalk suffixes with
  /// different sets of places nest in each other, as in one token repeated: then it may be an older one.
  Match match() const { return match_; }
  static constexpr size_t kWalk = 64;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  /// A set of substrings with the same places of ending; the longest has `length` tokens.
  struct State {
    uint32_t length;
    uint32_t link;    // the longest suffix with more places
    uint32_t latest;  // where it ended most recently
    uint32_t edges;   // newest edge out of it
  };
  struct Edge {
    uint32_t from;
    int32_t token;
    uint32_t to;
    uint32_t next;  // another edge out of `from`
  };

  size_t slot_of(uint32_t state, int32_t token) const;
  Edge* find(uint32_t state, int32_t token);
  void add_edge(uint32_t from, int32_t token, uint32_t to);
  uint32_t add_state(uint32_t length, uint32_t link, uint32_t latest);
  uint32_t split(uint32_t parent, uint32_t state, int32_t token);

  size_t capacity_;
  size_t length_ = 0;
  uint32_t last_ = 0;  // the state of the whole text
  Match match_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> table_;  // hash of (state, token) to index of edge + 1; 0: free
};

}  // namespace isthmus
