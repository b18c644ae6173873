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
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "kernels/panel_layout.h"
#include "ops/attention.h"
#include "ops/kv_block.h"
#include "os/mmap.h"

namespace isthmus {

using BlockId = uint32_t;

/// What was done to a block's contents, from nothing to most. Only exact blocks may enter an exact prefix
/// tree.
enum class Exactness : uint8_t {
  kExact,      // as the forward pass wrote them, rounded to the pool's float type
  kQuantised,  // stored as codes with a shared scale
  kComposed,   // computed apart from the text before them
  kPredicted,  // not computed by this model at all
};

/// "exact", "quantised", "composed", "predicted".
constexpr std::string_view exactness_name(Exactness exactness) {
  constexpr std::string_view kNames[] = {"exact", "quantised", "composed", "predicted"};
  return kNames[static_cast<size_t>(exactness)];
}

/// The arithmetic classes that wrote a block's keys: bit 1 << Compute for each.
using ComputeSet = uint8_t;
constexpr ComputeSet compute_bit(Compute compute) {
  return static_cast<ComputeSet>(1U << static_cast<unsigned>(compute));
}

struct BlockPoolConfig {
  KvType k_type = KvType::kF16;  // of blocks that are written; other types come by sealing
  KvType v_type = KvType::kF16;
  size_t head_dim = 0;
  size_t blocks = 0;
  KeyEncoding key_encoding = KeyEncoding::kAbsolute;  // how the forward pass stores keys
};

/// What a block says of itself. Its place in a text is not its own matter: a KvBlockRef has it.
struct BlockHeader {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  KeyEncoding key_encoding = KeyEncoding::kAbsolute;
  Exactness exactness = Exactness::kExact;
  ComputeSet computed_by = 0;
  bool sealed = false;            // complete and immutable: safe to share
  uint32_t valid = ~uint32_t{0};  // slots that hold a key
};

/// Who holds blocks that nobody needs now, and gives them up to those who do.
class BlockReclaimer {
 public:
  virtual ~BlockReclaimer() = default;
  /// Releases `blocks` blocks or more, or all that it can; returns how many came free. Called from any
  /// thread.
  virtual size_t reclaim(size_t blocks) = 0;
};

class BlockPool {
 public:
  /// kResourceExhausted when the ledger or the system refuses the memory. The ledger must outlive the pool.
  static Result<std::shared_ptr<BlockPool>> create(const BlockPoolConfig& config, Ledger& ledger);

  const BlockPoolConfig& config() const { return config_; }
  size_t block_bytes() const { return block_bytes_; }
  static size_t block_bytes(const BlockPoolConfig& config);
  /// What the pool keeps per block beside its bytes.
  static constexpr size_t kBookkeeping =
      sizeof(std::atomic<uint32_t>) + sizeof(BlockHeader) + sizeof(BlockId);
  size_t free_blocks() const;
  size_t used_blocks() const { return config_.blocks - free_blocks(); }

  /// Asked by allocate() when too few blocks are free. It must outlive its stay here.
  void add_reclaimer(BlockReclaimer& reclaimer);
  void remove_reclaimer(BlockReclaimer& reclaimer);

  /// Takes `n` blocks, each with one owner, appended to `out`; all or nothing. kResourceExhausted says how
  /// many are free.
  Status allocate(size_t n, std::vector<BlockId>& out);
  /// One more owner.
  void retain(BlockId id) { entries_[id].owners.fetch_add(1, std::memory_order_relaxed); }
  /// One owner less; the last one frees the block.
  void release(BlockId id);
  bool shared(BlockId id) const { return entries_[id].owners.load(std::memory_order_acquire) > 1; }

  const BlockHeader& header(BlockId id) const { return entries_[id].header; }
  /// For the block's single owner, unsealing too.
  BlockHeader& header(BlockId id) { return entries_[id].header; }

  std::byte* k(BlockId id) { return arena_.data() + id * block_bytes_; }
  std::byte* v(BlockId id) { return k(id) + k_bytes_; }

 private:
  struct Entry {
    std::atomic<uint32_t> owners{0};
    BlockHeader header;
  };
  BlockPool(const BlockPoolConfig& config, HugeArena arena, Charge charge);
  bool reclaim(size_t blocks);

  BlockPoolConfig config_;
  size_t k_bytes_ = 0;
  size_t block_bytes_ = 0;
  HugeArena arena_;
  Charge charge_;
  std::unique_ptr<Entry[]> entries_;
  mutable std::mutex mutex_;
  std::vector<BlockId> free_;  // a stack: the block freed last is warm and is taken first
  std::mutex reclaim_mutex_;   // taken before mutex_
  std::vector<BlockReclaimer*> reclaimers_;
};

}  // namespace isthmus
