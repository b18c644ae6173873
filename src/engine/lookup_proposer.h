// Drafts copied from the text itself ("prompt lookup", Saxena 2023): the continuation of the most recent
// earlier place where the longest possible suffix of the text stood. No model, some hundred nanoseconds a
// token.
//
// Memory is taken at construction, for a window of the newest tokens; when it is full, its older half is
// forgotten. Not thread-safe.
#pragma once

#include <vector>

#include "engine/proposer.h"
#include "engine/suffix_automaton.h"

namespace isthmus {

class LookupProposer : public Proposer {
 public:
  /// `window` tokens are looked back at (at least 2); matches shorter than `min_match` propose nothing.
  LookupProposer(size_t window, size_t min_match);
  /// The window for a context of so many tokens.
  static size_t window_for(size_t context);
  static uint64_t bytes(size_t window);

  void push(TokenId token) override;
  /// A place that overlaps the end of the text is continued as the period that it is.
  Draft propose(std::span<TokenId> out) override;

 private:
  size_t min_match_;
  std::vector<TokenId> text_;  // what the automaton holds
  SuffixAutomaton automaton_;
};

}  // namespace isthmus
