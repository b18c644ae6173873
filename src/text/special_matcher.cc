#include "text/special_matcher.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace isthmus::tok {
namespace {

// Bytes that a stripping token swallows: white space of the C locale, as in the reference.
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialMatcher::SpecialMatcher(std::vector<Spelling> spellings) {
  std::sort(spellings.begin(), spellings.end(), [](const Spelling& a, const Spelling& b) {
    return std::make_tuple(b.text.size(), a.id) < std::make_tuple(a.text.size(), b.id);
  });
  // Edges are first kept as lists per node, then laid out one node after another.
  std::vector<std::vector<Edge>> edges(1);
  nodes_.emplace_back();
  for (const auto& spelling : spellings) {
    uint32_t node = kRoot;
    for (size_t i = spelling.text.size(); i-- > 0;) {
      const auto byte = static_cast<uint8_t>(spelling.text[i]);
      const auto found =
          std::find_if(edges[node].begin(), edges[node].end(), [&](const Edge& e) { return e.byte == byte; });
      if (found != edges[node].end()) {
        node = found->node;
        continue;
      }
      const auto next = static_cast<uint32_t>(nodes_.size());
      edges[node].push_back({byte, next});
      nodes_.emplace_back();
      edges.emplace_back();
      node = next;
    }
    nodes_[node].spelling = static_cast<uint32_t>(patterns_.size());
    patterns_.push_back({spelling.text.size(), spelling.id, spelling.strips_right});
  }
  for (size_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].first_edge = static_cast<uint32_t>(edges_.size());
    nodes_[node].edge_count = static_cast<uint32_t>(edges[node].size());
    edges_.insert(edges_.end(), edges[node].begin(), edges[node].end());
  }
  for (const auto& edge : edges[kRoot]) root_[edge.byte] = edge.node;
  link_fallbacks();
}

uint32_t SpecialMatcher::child(uint32_t node, uint8_t byte) const {
  const Edge* edge = edges_.data() + nodes_[node].first_edge;
  for (uint32_t i = 0; i < nodes_[node].edge_count; ++i) {
    if (edge[i].byte == byte) return edge[i].node;
  }
  return kNone;
}

uint32_t SpecialMatcher::step(uint32_t node, uint8_t byte) const {
  while (node != kRoot) {
    const uint32_t next = child(node, byte);
    if (next != kNone) return next;
    node = nodes_[node].fallback;
  }
  return root_[byte];
}

// Breadth first: a node's fallback is shorter, so it is already done.
void SpecialMatcher::link_fallbacks() {
  std::queue<uint32_t> queue;
  queue.push(kRoot);
  while (!queue.empty()) {
    const uint32_t node = queue.front();
    queue.pop();
    for (uint32_t i = 0; i < nodes_[node].edge_count; ++i) {
      const auto [byte, next] = edges_[nodes_[node].first_edge + i];
      const uint32_t fallback = node == kRoot ? kRoot : step(nodes_[node].fallback, byte);
      nodes_[next].fallback = fallback;
      if (nodes_[next].spelling == kNone) {
        nodes_[next].spelling = nodes_[fallback].spelling;
        nodes_[next].shorter = nodes_[fallback].shorter;
      } else if (nodes_[fallback].spelling != kNone) {
        nodes_[next].shorter = fallback;
      }
      queue.push(next);
    }
  }
}

// Every position where a spelling starts, ascending, with the node of the longest one.
std::vector<SpecialMatcher::Candidate> SpecialMatcher::candidates(std::string_view text) const {
  std::vector<Candidate> out;
  uint32_t node = kRoot;
  for (size_t i = text.size(); i-- > 0;) {
    node = step(node, static_cast<uint8_t>(text[i]));
    if (nodes_[node].spelling != kNone) out.push_back({i, node});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Fragment> SpecialMatcher::split(std::string_view text) const {
  if (text.empty()) return {};
  std::vector<Candidate> first;
  if (!patterns_.empty()) first = candidates(text);
  if (first.empty()) return {{0, text.size(), -1}};

  const auto before = [&](const Candidate& a, const Candidate& b) {
    return std::make_tuple(nodes_[a.node].spelling, a.position) <
           std::make_tuple(nodes_[b.node].spelling, b.position);
  };
  const auto after = [&](const Candidate& a, const Candidate& b) { return before(b, a); };
  if (!std::is_sorted(first.begin(), first.end(), before)) std::sort(first.begin(), first.end(), before);
  // Places whose longest spelling did not fit come back with the next shorter one.
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(after)> again(after);

  std::vector<bool> taken(text.size());
  std::vector<Fragment> tokens;  // end: behind the stripped white space
  for (size_t i = 0; i < first.size() || !again.empty();) {
    Candidate candidate{};
    if (again.empty() || (i < first.size() && before(first[i], again.top()))) {
      candidate = first[i++];
    } else {
      candidate = again.top();
      again.pop();
    }
    const size_t begin = candidate.position;
    if (taken[begin]) continue;
    const Pattern& pattern = patterns_[nodes_[candidate.node].spelling];
    // What is taken already is at least as long as this, so an overlap shows at one of the two ends.
    if (taken[begin + pattern.length - 1]) {
      if (const uint32_t next = nodes_[candidate.node].shorter; next != kNone) again.push({begin, next});
      continue;
    }
    size_t end = begin + pattern.length;
    while (pattern.strips_right && end < text.size() && !taken[end] && is_space(text[end])) ++end;
    std::fill(taken.begin() + static_cast<ptrdiff_t>(begin), taken.begin() + static_cast<ptrdiff_t>(end),
              true);
    tokens.push_back({begin, end, pattern.id});
  }

  std::sort(tokens.begin(), tokens.end(),
            [](const Fragment& a, const Fragment& b) { return a.begin < b.begin; });
  std::vector<Fragment> out;
  size_t rest = 0;
  for (const auto& token : tokens) {
    if (rest < token.begin) out.push_back({rest, token.begin, -1});
    out.push_back(token);
    rest = token.end;
  }
  if (rest < text.size()) out.push_back({rest, text.size(), -1});
  return out;
}

}  // namespace isthmus::tok
