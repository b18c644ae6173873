#include "kv/block_pool.h"

#include <string>
#include <utility>

#include "base/checked.h"

namespace isthmus {

size_t BlockPool::block_bytes(const BlockPoolConfig& config) {
  return kv_part_bytes(config.k_type, KvPart::kKey, config.head_dim) +
         kv_part_bytes(config.v_type, KvPart::kValue, config.head_dim);
}

Result<std::shared_ptr<BlockPool>> BlockPool::create(const BlockPoolConfig& config, Ledger& ledger) {
  const auto bytes = checked_mul<uint64_t>(block_bytes(config), config.blocks);
  if (!bytes || config.blocks >= UINT32_MAX) {
    return resource_exhausted("a KV cache of " + std::to_string(config.blocks) + " blocks is too large");
  }
  ISTHMUS_ASSIGN_OR_RETURN(Charge charge, ledger.charge(MemoryKind::kKv, *bytes));
  ISTHMUS_ASSIGN_OR_RETURN(HugeArena arena, HugeArena::allocate(static_cast<size_t>(*bytes)));
  return std::shared_ptr<BlockPool>(new BlockPool(config, std::move(arena), std::move(charge)));
}

BlockPool::BlockPool(const BlockPoolConfig& config, HugeArena arena, Charge charge)
    : config_(config),
      k_bytes_(kv_part_bytes(config.k_type, KvPart::kKey, config.head_dim)),
      block_bytes_(block_bytes(config)),
      arena_(std::move(arena)),
      charge_(std::move(charge)),
      entries_(std::make_unique<Entry[]>(config.blocks)) {
  free_.reserve(config.blocks);
  for (size_t i = config.blocks; i > 0; --i) free_.push_back(static_cast<BlockId>(i - 1));
}

size_t BlockPool::free_blocks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return free_.size();
}

void BlockPool::add_reclaimer(BlockReclaimer& reclaimer) {
  const std::lock_guard<std::mutex> lock(reclaim_mutex_);
  reclaimers_.push_back(&reclaimer);
}

void BlockPool::remove_reclaimer(BlockReclaimer& reclaimer) {
  const std::lock_guard<std::mutex> lock(reclaim_mutex_);
  std::erase(reclaimers_, &reclaimer);
}

/// False when nobody could give up a block.
bool BlockPool::reclaim(size_t blocks) {
  const std::lock_guard<std::mutex> lock(reclaim_mutex_);
  size_t freed = 0;
  for (BlockReclaimer* reclaimer : reclaimers_) {
    if (freed < blocks) freed += reclaimer->reclaim(blocks - freed);
  }
  return freed > 0;
}

Status BlockPool::allocate(size_t n, std::vector<BlockId>& out) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (n > free_.size() && n <= config_.blocks) {
    const size_t missing = n - free_.size();
    lock.unlock();
    const bool freed = reclaim(missing);
    lock.lock();
    if (!freed) break;
  }
  if (n > free_.size()) {
    return resource_exhausted("the KV cache is full: " + std::to_string(n) + " blocks needed, " +
                              std::to_string(free_.size()) + " of " + std::to_string(config_.blocks) +
                              " free");
  }
  for (size_t i = 0; i < n; ++i) {
    const BlockId id = free_.back();
    free_.pop_back();
    entries_[id].owners.store(1, std::memory_order_relaxed);
    entries_[id].header = {};
    entries_[id].header.k_type = config_.k_type;
    entries_[id].header.v_type = config_.v_type;
    entries_[id].header.key_encoding = config_.key_encoding;
    const bool exact = kv_type_info(config_.k_type).exact && kv_type_info(config_.v_type).exact;
    entries_[id].header.exactness = exact ? Exactness::kExact : Exactness::kQuantised;
    out.push_back(id);
  }
  return ok_status();
}

void BlockPool::release(BlockId id) {
  if (entries_[id].owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(id);
}

}  // namespace isthmus
