// The block pool: all KV memory of one model, in blocks of 32 tokens of one layer and one KV head.
//
// A block holds a K part and a V part (ops/kv_block.h gives their layout). The pool's bytes are charged to
// the ledger and their addresses reserved when it is created; the operating system backs a block with memory
// at its first use. Blocks are counted: a block with one owner may be written, a shared or sealed one may
// not. allocate() and release() are thread-safe; writing a block is the business of its single owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "ops/kv_block.h"
#include "os/mmap.h"

namespace isthmus {

using BlockId = uint32_t;

struct BlockPoolConfig {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  size_t head_dim = 0;
  size_t blocks = 0;
};

class BlockPool {
 public:
  /// kResourceExhausted when the ledger or the system refuses the memory. The ledger must outlive the pool.
  static Result<std::shared_ptr<BlockPool>> create(const BlockPoolConfig& config, Ledger& ledger);

  const BlockPoolConfig& config() const { return config_; }
  size_t block_bytes() const { return block_bytes_; }
  size_t free_blocks() const;
  size_t used_blocks() const { return config_.blocks - free_blocks(); }

  /// Takes `n` blocks, each with one owner, appended to `out`; all or nothing. kResourceExhausted says how
  /// many are free.
  Status allocate(size_t n, std::vector<BlockId>& out);
  /// One more owner.
  void retain(BlockId id) { header(id).owners.fetch_add(1, std::memory_order_relaxed); }
  /// One owner less; the last one frees the block.
  void release(BlockId id);
  bool shared(BlockId id) const { return headers_[id].owners.load(std::memory_order_acquire) > 1; }

  /// A sealed block is complete and immutable: safe to share. Unsealing is for its single owner.
  void set_sealed(BlockId id, bool sealed) { header(id).sealed = sealed; }
  bool sealed(BlockId id) const { return headers_[id].sealed; }

  std::byte* k(BlockId id) { return arena_.data() + id * block_bytes_; }
  std::byte* v(BlockId id) { return k(id) + k_bytes_; }

 private:
  struct Header {
    std::atomic<uint32_t> owners{0};
    bool sealed = false;
  };
  BlockPool(const BlockPoolConfig& config, HugeArena arena, Charge charge);
  Header& header(BlockId id) { return headers_[id]; }

  BlockPoolConfig config_;
  size_t k_bytes_ = 0;
  size_t block_bytes_ = 0;
  HugeArena arena_;
  Charge charge_;
  std::unique_ptr<Header[]> headers_;
  mutable std::mutex mutex_;
  std::vector<BlockId> free_;  // a stack: the block freed last is warm and is taken first
};

}  // namespace isthmus
