// A priority queue of (rank, place), lowest rank first and of equal ranks the lowest place.
//
// Long words hold few distinct ranks and reach the places of one rank from left to right, so the places of
// each rank stand in a list of their own and only the ranks are in a heap: push and pop are mostly one append
// and one step, where a heap of all entries would be a walk through memory. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace isthmus::tok {

class RankQueue {
 public:
  void clear() {
    if (slots_.empty()) slots_.assign(64, kFree);
    for (size_t i = 0; i < used_; ++i) {
      slots_[lists_[i].slot] = kFree;
      lists_[i].reset();
    }
    used_ = 0;
    ranks_.clear();
  }

  void push(uint32_t rank, uint32_t place) {
    List& list = list_of(rank);
    if (list.empty()) {
      ranks_.push_back(static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(&list - lists_.data()));
      std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
    }
    list.push(place);
  }

  /// Takes the first entry; false when there is none.
  bool pop(uint32_t& rank, uint32_t& place) {
    if (ranks_.empty()) return false;
    rank = static_cast<uint32_t>(ranks_.front() >> 32);
    List& list = lists_[static_cast<uint32_t>(ranks_.front())];
    place = list.pop();
    if (list.empty()) {
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      ranks_.pop_back();
    }
    return true;
  }

 private:
  static constexpr uint32_t kFree = 0xFFFFFFFF;

  // The places of one rank: those that came in ascending order, and a heap of the others.
  struct List {
    uint32_t rank = 0;
    size_t slot = 0;
    size_t next = 0;
    std::vector<uint32_t> ascending;
    std::vector<uint32_t> late;

    bool empty() const { return next == ascending.size() && late.empty(); }
    void reset() {
      next = 0;
      ascending.clear();
      late.clear();
    }
    void push(uint32_t place) {
      if (next == ascending.size() || ascending.back() <= place) {
        ascending.push_back(place);
        return;
      }
      late.push_back(place);
      std::push_heap(late.begin(), late.end(), std::greater<>());
    }
    uint32_t pop() {
      uint32_t place;
      if (late.empty() || (next < ascending.size() && ascending[next] <= late.front())) {
        place = ascending[next++];
      } else {
        place = late.front();
        std::pop_heap(late.begin(), late.end(), std::greater<>());
        late.pop_back();
      }
      if (empty()) reset();
      return place;
    }
  };

  static size_t start_of(uint32_t rank) { return (rank * 0x9E3779B97F4A7C15ULL) >> 32; }

  List& list_of(uint32_t rank) {
    size_t at = start_of(rank) & (slots_.size() - 1);
    while (slots_[at] != kFree) {
      if (lists_[slots_[at]].rank == rank) return lists_[slots_[at]];
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = static_cast<uint32_t>(used_);
    if (used_ == lists_.size()) lists_.emplace_back();
    List& list = lists_[used_++];
    list.rank = rank;
    list.slot = at;
    if (used_ * 2 > slots_.size()) grow();
    return list;
  }

  void grow() {
    slots_.assign(slots_.size() * 2, kFree);
    for (uint32_t i = 0; i < used_; ++i) {
      size_t at = start_of(lists_[i].rank) & (slots_.size() - 1);
      while (slots_[at] != kFree) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = i;
      lists_[i].slot = at;
    }
  }

  std::vector<uint64_t> ranks_;  // rank in the high half, list in the low; those with places, as a heap
  std::vector<List> lists_;      // the first used_ hold ranks of this word
  std::vector<uint32_t> slots_;  // from a rank to its list: a hash table, at most half full
  size_t used_ = 0;
};

}  // namespace isthmus::tok
