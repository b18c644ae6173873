#include "engine/suffix_automaton.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace isthmus {
namespace {

// Bounds of Blumer et al.: 2n - 1 states and 3n - 4 edges; a little more for the shortest texts.
size_t most_states(size_t capacity) { return 2 * capacity + 2; }
size_t most_edges(size_t capacity) { return 3 * capacity + 2; }
/// At most three quarters full.
size_t table_slots(size_t capacity) { return std::bit_ceil(most_edges(capacity) / 3 * 4 + 4); }

}  // namespace

SuffixAutomaton::SuffixAutomaton(size_t capacity) : capacity_(std::clamp<size_t>(capacity, 1, kMostTokens)) {
  states_.reserve(most_states(capacity_));
  edges_.reserve(most_edges(capacity_));
  table_.resize(table_slots(capacity_));
  clear();
}

uint64_t SuffixAutomaton::bytes(size_t capacity) {
  const size_t n = std::clamp<size_t>(capacity, 1, kMostTokens);
  return most_states(n) * sizeof(State) + most_edges(n) * sizeof(Edge) + table_slots(n) * sizeof(uint32_t);
}

void SuffixAutomaton::clear() {
  states_.clear();
  edges_.clear();
  std::fill(table_.begin(), table_.end(), 0U);
  length_ = 0;
  match_ = {};
  last_ = add_state(0, kNone, 0);
}

size_t SuffixAutomaton::slot_of(uint32_t state, int32_t token) const {
  const uint64_t key = (uint64_t{state} << 32) | static_cast<uint32_t>(token);
  const uint64_t mixed = (key ^ (key >> 29)) * 0x9E3779B97F4A7C15U;
  const size_t mask = table_.size() - 1;
  size_t slot = static_cast<size_t>(mixed >> 32) & mask;
  while (table_[slot] != 0) {
    const Edge& edge = edges_[table_[slot] - 1];
    if (edge.from == state && edge.token == token) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

SuffixAutomaton::Edge* SuffixAutomaton::find(uint32_t state, int32_t token) {
  const uint32_t index = table_[slot_of(state, token)];
  return index == 0 ? nullptr : &edges_[index - 1];
}

void SuffixAutomaton::add_edge(uint32_t from, int32_t token, uint32_t to) {
  table_[slot_of(from, token)] = static_cast<uint32_t>(edges_.size() + 1);
  edges_.push_back({from, token, to, states_[from].edges});
  states_[from].edges = static_cast<uint32_t>(edges_.size() - 1);
}

uint32_t SuffixAutomaton::add_state(uint32_t length, uint32_t link, uint32_t latest) {
  states_.push_back({length, link, latest, kNone});
  return static_cast<uint32_t>(states_.size() - 1);
}

/// Gives the suffixes of `state` that follow from `parent` by `token` a state of their own: they have one
/// more place now.
uint32_t SuffixAutomaton::split(uint32_t parent, uint32_t state, int32_t token) {
  const State old = states_[state];
  const uint32_t made = add_state(states_[parent].length + 1, old.link, old.latest);
  for (uint32_t e = old.edges; e != kNone; e = edges_[e].next) {
    add_edge(made, edges_[e].token, edges_[e].to);
  }
  for (uint32_t p = parent; p != kNone; p = states_[p].link) {
    Edge* edge = find(p, token);
    if (edge == nullptr || edge->to != state) break;
    edge->to = made;
  }
  states_[state].link = made;
  return made;
}

void SuffixAutomaton::push(int32_t token) {
  assert(length_ < capacity_);
  ++length_;
  const auto end = static_cast<uint32_t>(length_);
  const uint32_t made = add_state(end, 0, end);
  uint32_t p = last_;
  Edge* edge = nullptr;
  while (p != kNone && (edge = find(p, token)) == nullptr) {
    add_edge(p, token, made);
    p = states_[p].link;
  }
  if (p != kNone) {
    const uint32_t next = edge->to;
    const bool fits = states_[next].length == states_[p].length + 1;
    states_[made].link = fits ? next : split(p, next, token);
  }
  last_ = made;
  const State& twice = states_[states_[made].link];
  match_ = {twice.length, twice.latest};
  uint32_t state = states_[made].link;
  for (size_t i = 0; i < kWalk && state != 0; ++i) {
    states_[state].latest = end;
    state = states_[state].link;
  }
}

}  // namespace isthmus
