#include "engine/lookup_proposer.h"

#include <algorithm>

namespace isthmus {
namespace {

/// Some four megabytes.
constexpr size_t kMostWindow = 32768;

}  // namespace

LookupProposer::LookupProposer(size_t window, size_t min_match)
    : min_match_(std::max<size_t>(1, min_match)), automaton_(std::max<size_t>(2, window)) {
  text_.reserve(automaton_.capacity());
}

size_t LookupProposer::window_for(size_t context) { return std::clamp<size_t>(context, 2, kMostWindow); }

uint64_t LookupProposer::bytes(size_t window) {
  return SuffixAutomaton::bytes(std::max<size_t>(2, window)) + window * sizeof(TokenId);
}

void LookupProposer::push(TokenId token) {
  if (text_.size() == automaton_.capacity()) {
    text_.erase(text_.begin(), text_.begin() + static_cast<ptrdiff_t>((text_.size() + 1) / 2));
    automaton_.clear();
    for (const TokenId kept : text_) automaton_.push(kept);
  }
  text_.push_back(token);
  automaton_.push(token);
}

Draft LookupProposer::propose(std::span<TokenId> out) {
  const SuffixAutomaton::Match match = automaton_.match();
  if (match.length < min_match_ || out.empty()) return {};
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t at = match.end + i;
    out[i] = at < text_.size() ? text_[at] : out[at - text_.size()];
  }
  return {out.size(), match.length};
}

}  // namespace isthmus
