// Finds special tokens in text: longer spellings first, then lower ids, each from left to right.
//
// That order (not leftmost first) is the reference's, and decides where spellings overlap. The text is walked
// once with an automaton (Aho and Corasick 1975, over the reversed spellings, so that each position knows the
// longest spelling that starts there), which keeps the work linear for any text and any set of spellings. A
// matcher is immutable and may be used from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace isthmus::tok {

/// A special token, or a stretch of text between them (id -1).
struct Fragment {
  size_t begin;
  size_t end;
  TokenId id;
};

class SpecialMatcher {
 public:
  struct Spelling {
    std::string_view text;  // not empty
    TokenId id;
    bool strips_right;  // white space behind it goes with it
  };

  SpecialMatcher() = default;
  explicit SpecialMatcher(std::vector<Spelling> spellings);

  /// `text` as fragments, in order. White space that a token strips is in no fragment.
  std::vector<Fragment> split(std::string_view text) const;

 private:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  // A node is a suffix of one or more spellings.
  struct Node {
    uint32_t first_edge = 0;
    uint32_t edge_count = 0;
    uint32_t fallback = kRoot;  // the longest proper part of it (its own prefix end) that is a node too
    uint32_t spelling = kNone;  // the longest spelling that matches here, as a rank
    uint32_t shorter = kNone;   // the node with the next shorter spelling at the same place
  };
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  struct Pattern {
    size_t length;
    TokenId id;
    bool strips_right;
  };
  struct Candidate {
    size_t position;
    uint32_t node;
  };

  uint32_t child(uint32_t node, uint8_t byte) const;
  uint32_t step(uint32_t node, uint8_t byte) const;
  void link_fallbacks();
  std::vector<Candidate> candidates(std::string_view text) const;

  std::vector<Pattern> patterns_;  // by rank: the order in which they are matched
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<uint32_t, 256> root_{};
};

}  // namespace isthmus::tok
