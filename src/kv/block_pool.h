// The block pool: all KV memory of one model, in blocks of 32 tokens of one layer and one KV head.
//
// A block holds a K part and a V part (ops/kv_block.h gives their layout). The pool's bytes are charged to
// the ledger and their addresses reserved when it is created; the operating system backs a block with memory
// at its first use. Blocks are counted: a block with one owner may be written, a shared or sealed one may
// not. allocate() and release() are thread-safe; writing a block is the business of its single owner.
//
// Blocks of different formats have different sizes: memory goes to a format in slabs of kSlabBlocks open
// blocks, and comes back when all blocks of a slab are free. A pool of one format has slabs of one block.
#pragma once

#include <atomic>
#include <bitset>
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

/// How the two parts of a block are stored.
struct KvFormat {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  friend bool operator==(const KvFormat&, const KvFormat&) = default;
};

struct BlockPoolConfig {
  KvType k_type = KvType::kF16;  // of blocks that are written; other types come by encoding
  KvType v_type = KvType::kF16;
  size_t head_dim = 0;
  size_t blocks = 0;                                  // memory, in blocks of the types above
  KeyEncoding key_encoding = KeyEncoding::kAbsolute;  // how the forward pass stores keys
  /// What full blocks of each layer become, `residual` tokens at a time; empty: they stay as written.
  std::vector<KvFormat> coded = {};
  size_t residual = 128;  // a multiple of 32
  /// Further formats that single full blocks may be given (KvSequence::recode).
  std::vector<KvFormat> levels = {};

  KvFormat open() const { return {k_type, v_type}; }
  size_t format_bytes(KvFormat format) const {
    return kv_part_bytes(format.k_type, KvPart::kKey, head_dim) +
           kv_part_bytes(format.v_type, KvPart::kValue, head_dim);
  }
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
  /// Of an open block.
  size_t block_bytes() const { return classes_.front().bytes; }
  static size_t block_bytes(const BlockPoolConfig& config) { return config.format_bytes(config.open()); }
  size_t block_bytes(BlockId id) const { return class_of(id).bytes; }
  /// What a pool keeps beside the bytes of its blocks.
  static size_t bookkeeping(const BlockPoolConfig& config);
  /// Slabs are of this many open blocks where there are several formats.
  static constexpr size_t kSlabBlocks = 16;
  /// Memory for open blocks.
  size_t free_blocks() const;
  size_t used_blocks() const { return config_.blocks - free_blocks(); }

  /// Asked by allocate() when too few blocks are free. It must outlive its stay here.
  void add_reclaimer(BlockReclaimer& reclaimer);
  void remove_reclaimer(BlockReclaimer& reclaimer);

  /// Takes `n` blocks, each with one owner, appended to `out`; all or nothing. kResourceExhausted says how
  /// many are free.
  Status allocate(size_t n, std::vector<BlockId>& out);
  /// Whether blocks of a format can be had.
  bool has_format(KvFormat format) const;
  /// One block of a format: the open one, or one of config().coded or levels.
  Result<BlockId> allocate_coded(KvFormat format);
  /// One more owner.
  void retain(BlockId id) { entries_[id].owners.fetch_add(1, std::memory_order_relaxed); }
  /// One owner less; the last one frees the block.
  void release(BlockId id);
  bool shared(BlockId id) const { return entries_[id].owners.load(std::memory_order_acquire) > 1; }

  const BlockHeader& header(BlockId id) const { return entries_[id].header; }
  /// For the block's single owner, unsealing too.
  BlockHeader& header(BlockId id) { return entries_[id].header; }

  std::byte* k(BlockId id) {
    const size_t slab = id >> layout_.id_shift;
    const size_t index = id & ((BlockId{1} << layout_.id_shift) - 1);
    return arena_.data() + slab * layout_.slab_bytes + index * class_of(id).bytes;
  }
  std::byte* v(BlockId id) { return k(id) + class_of(id).k_bytes; }

 private:
  struct Entry {
    std::atomic<uint32_t> owners{0};
    BlockHeader header;
  };
  /// How memory is cut: block `index` of a slab has the id (slab << id_shift) + index.
  struct Layout {
    explicit Layout(const BlockPoolConfig& config);
    size_t slab_blocks;  // open blocks of a slab
    size_t slab_bytes;
    size_t slabs;
    unsigned id_shift;
    size_t ids() const { return slabs << id_shift; }
  };
  /// Blocks of one format.
  struct Class {
    KvFormat format;
    size_t k_bytes;
    size_t bytes;
    size_t per_slab;
    std::vector<uint32_t> partial = {};  // slabs with used and free blocks
    size_t free = 0;                     // blocks in those
  };
  static constexpr size_t kMostPerSlab = 256;
  struct Slab {
    uint8_t format = 0;  // index of its class
    uint16_t used = 0;
    uint32_t place = 0;  // in its class's partial slabs
    std::bitset<kMostPerSlab> taken = {};
  };
  BlockPool(const BlockPoolConfig& config, HugeArena arena, Charge charge);
  bool reclaim(size_t blocks);
  const Class& class_of(BlockId id) const { return classes_[slabs_[id >> layout_.id_shift].format]; }
  size_t available(const Class& blocks) const { return blocks.free + free_slabs_.size() * blocks.per_slab; }
  BlockId take(size_t format);
  void open_slab(size_t format);
  void leave_partial(Slab& slab);
  Status take_some(size_t n, size_t format, std::vector<BlockId>& out);

  BlockPoolConfig config_;
  Layout layout_;
  HugeArena arena_;
  Charge charge_;
  std::unique_ptr<Entry[]> entries_;
  mutable std::mutex mutex_;
  std::vector<Class> classes_;  // the open format first
  std::vector<Slab> slabs_;
  std::vector<uint32_t> free_slabs_;  // a stack: what was freed last is warm and is taken first
  std::mutex reclaim_mutex_;          // taken before mutex_
  std::vector<BlockReclaimer*> reclaimers_;
};

}  // namespace isthmus
