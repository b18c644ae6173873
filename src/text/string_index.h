// A hash index from strings to their numbers in a table that the caller keeps.
//
// Built once, then read from any thread. Strings come from untrusted files: building reports a string that
// occurs twice, and gives up on data crafted to make every string collide.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace isthmus::tok {

/// Multiply-and-fold hash of short strings, 8 bytes a step. Not for secrets.
inline uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ULL;
  const auto fold = [](uint64_t a, uint64_t b) {
    const auto wide = static_cast<__uint128_t>(a) * b;
    return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
  };
  uint64_t hash = text.size() * kFactor + 0x632BE59BD9B4E019ULL;
  const char* data = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    hash = fold(hash ^ word, kFactor);
  }
  uint64_t tail = 0;
  if (left >= 4) {
    uint32_t low, high;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + left - 4, 4);
    tail = static_cast<uint64_t>(high) << 32 | low;
  } else if (left > 0) {
    tail = static_cast<uint64_t>(static_cast<uint8_t>(data[0])) << 16 |
           static_cast<uint64_t>(static_cast<uint8_t>(data[left / 2])) << 8 |
           static_cast<uint8_t>(data[left - 1]);
  }
  return fold(hash ^ tail, kFactor ^ 0xD6E8FEB86659FD93ULL);
}

class StringIndex {
 public:
  enum class Added { kNew, kTwice, kTooManyCollisions };

  /// Room for `count` strings; forgets what was there.
  void reset(size_t count) { slots_.assign(std::bit_ceil(std::max<size_t>(count * 2, 8)), Slot{}); }
  /// Enters table[number]; `count` of reset() must not be exceeded.
  template <class Table>
  Added add(uint32_t number, const Table& table) {
    const std::string_view text = table[number];
    const uint64_t hash = hash_bytes(text);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    size_t at = hash & (slots_.size() - 1);
    for (size_t probes = 0; slots_[at].number != 0; ++probes) {
      if (slots_[at].tag == tag && table[slots_[at].number - 1] == text) return Added::kTwice;
      if (probes == kMaxProbes) return Added::kTooManyCollisions;
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {number + 1, tag};
    return Added::kNew;
  }
  /// The number of `text`, or -1.
  template <class Table>
  int32_t find(std::string_view text, const Table& table) const {
    return find(text, hash_bytes(text), table);
  }
  /// The same for a hash_bytes(text) that is known; reset() must have been called.
  template <class Table>
  int32_t find(std::string_view text, uint64_t hash, const Table& table) const {
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t at = hash & (slots_.size() - 1); slots_[at].number != 0;
         at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].tag == tag && table[slots_[at].number - 1] == text) {
        return static_cast<int32_t>(slots_[at].number - 1);
      }
    }
    return -1;
  }
  /// Asks the memory for what find(text, hash) will read first.
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }

 private:
  // Honest vocabularies at half load need fewer than 100 probes.
  static constexpr size_t kMaxProbes = 1000;
  struct Slot {
    uint32_t number = 0;  // plus one; 0 is an empty slot
    uint32_t tag = 0;
  };
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace isthmus::tok
