// The memory ledger: every large buffer (weights, KV blocks, adapters, work buffers) is charged here before
// it is taken.
//
// One Ledger per budget; it outlives what is charged to it. charge() fails, naming what was asked for and
// what is left, instead of letting the process run out of memory later. A Charge gives its bytes back when it
// is destroyed. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace isthmus {

enum class MemoryKind { kWeights, kKv, kWork, kText, kAdapter, kCount };

/// "weights", "KV cache", "work buffers", "tokenizer and metadata", "adapters".
std::string_view memory_kind_name(MemoryKind kind);

/// Bytes for people: "98.4 MB" (decimal units).
std::string format_bytes(uint64_t bytes);

class Ledger;

/// Bytes held in a ledger; move-only.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept { *this = std::move(other); }
  Charge& operator=(Charge&& other) noexcept;
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { reset(); }
  uint64_t bytes() const { return bytes_; }
  void reset();

 private:
  friend class Ledger;
  Charge(Ledger* ledger, MemoryKind kind, uint64_t bytes) : ledger_(ledger), kind_(kind), bytes_(bytes) {}
  Ledger* ledger_ = nullptr;
  MemoryKind kind_ = MemoryKind::kWork;
  uint64_t bytes_ = 0;
};

class Ledger {
 public:
  /// `limit_bytes` = UINT64_MAX: no limit, only bookkeeping.
  explicit Ledger(uint64_t limit_bytes = UINT64_MAX) : limit_(limit_bytes) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Takes `bytes`, or kResourceExhausted: nothing is taken then.
  Result<Charge> charge(MemoryKind kind, uint64_t bytes);
  uint64_t limit() const { return limit_; }
  uint64_t used() const;
  uint64_t used(MemoryKind kind) const;
  uint64_t peak() const;

 private:
  friend class Charge;
  void give_back(MemoryKind kind, uint64_t bytes);
  const uint64_t limit_;
  mutable std::mutex mutex_;
  std::array<uint64_t, static_cast<size_t>(MemoryKind::kCount)> by_kind_{};
  uint64_t used_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace isthmus
