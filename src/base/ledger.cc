#include "base/ledger.h"

#include <algorithm>
#include <cstdio>

namespace isthmus {

std::string_view memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kWeights:
      return "weights";
    case MemoryKind::kKv:
      return "KV cache";
    case MemoryKind::kWork:
      return "work buffers";
    case MemoryKind::kText:
      return "tokenizer and metadata";
    case MemoryKind::kAdapter:
      return "adapters";
    case MemoryKind::kCount:
      break;
  }
  return "memory";
}

std::string format_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    reset();
    ledger_ = std::exchange(other.ledger_, nullptr);
    kind_ = other.kind_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Charge::reset() {
  if (ledger_ != nullptr) ledger_->give_back(kind_, bytes_);
  ledger_ = nullptr;
  bytes_ = 0;
}

Result<Charge> Ledger::charge(MemoryKind kind, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > limit_ - used_) {
    return resource_exhausted(std::string(memory_kind_name(kind)) + " need " + format_bytes(bytes) +
                              ", but " + format_bytes(limit_ - used_) + " of the memory limit of " +
                              format_bytes(limit_) + " are left");
  }
  used_ += bytes;
  by_kind_[static_cast<size_t>(kind)] += bytes;
  peak_ = std::max(peak_, used_);
  return Charge(this, kind, bytes);
}

uint64_t Ledger::used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}

uint64_t Ledger::used(MemoryKind kind) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return by_kind_[static_cast<size_t>(kind)];
}

uint64_t Ledger::peak() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peak_;
}

void Ledger::give_back(MemoryKind kind, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  used_ -= bytes;
  by_kind_[static_cast<size_t>(kind)] -= bytes;
}

}  // namespace isthmus
