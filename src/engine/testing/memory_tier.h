// A tier of records in memory for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/record_tier.h"
#include "base/stored_record.h"
#include "base/xxh3.h"

namespace isthmus::testing {

inline Result<Digest> quick_digest(std::span<const std::byte> bytes) {
  Digest out{};
  const Xxh3Digest sum = xxh3_128(bytes);
  std::memcpy(out.data(), &sum, sizeof(sum));
  return out;
}

/// A tier in memory that can be told to lie.
class MemoryTier : public RecordTier {
 public:
  std::string_view name() const override { return "memory"; }
  bool holds(const Digest& key) override { return by_key.count(key) > 0 || lie; }
  Result<std::vector<std::byte>> read(const Digest& key) override {
    ++reads;
    if (lie) return *lie;
    const auto found = by_key.find(key);
    if (found == by_key.end()) return not_found("not there");
    return found->second;
  }
  Status write(std::span<const std::byte> record) override {
    if (full) return resource_exhausted("full");
    ++writes;
    const auto head = parse_record_head(record);
    EXPECT_TRUE(head.ok());
    for (const Digest& key : head->keys) by_key[key].assign(record.begin(), record.end());
    return ok_status();
  }
  void refuse(const Digest& key) override {
    ++refusals;
    by_key.erase(key);
  }

  void forget(const Digest& key) override { by_key.erase(key); }

  std::map<Digest, std::vector<std::byte>> by_key;
  std::optional<std::vector<std::byte>> lie;
  bool full = false;
  size_t reads = 0, writes = 0, refusals = 0;
};

}  // namespace isthmus::testing
