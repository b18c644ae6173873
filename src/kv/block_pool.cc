#include "kv/block_pool.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/checked.h"

namespace isthmus {

namespace {

/// The open format first, then the others, each once.
std::vector<KvFormat> formats_of(const BlockPoolConfig& config) {
  std::vector<KvFormat> out = {config.open()};
  for (const auto* formats : {&config.coded, &config.levels}) {
    for (const KvFormat& format : *formats) {
      if (std::find(out.begin(), out.end(), format) == out.end()) out.push_back(format);
    }
  }
  return out;
}

}  // namespace

BlockPool::Layout::Layout(const BlockPoolConfig& config) {
  const auto formats = formats_of(config);
  slab_blocks = formats.size() > 1 ? kSlabBlocks : 1;
  slab_bytes = slab_blocks * block_bytes(config);
  slabs = config.blocks / slab_blocks;
  size_t most = 1;
  for (const KvFormat& format : formats) most = std::max(most, slab_bytes / config.format_bytes(format));
  id_shift = static_cast<unsigned>(std::bit_width(most - 1));
}

size_t BlockPool::bookkeeping(const BlockPoolConfig& config) {
  const Layout layout(config);
  return layout.ids() * sizeof(Entry) + layout.slabs * (sizeof(Slab) + 2 * sizeof(uint32_t));
}

Result<std::shared_ptr<BlockPool>> BlockPool::create(const BlockPoolConfig& config, Ledger& ledger) {
  const auto bytes = checked_mul<uint64_t>(block_bytes(config), config.blocks);
  const Layout layout(config);
  if (!bytes || layout.slabs >= (uint64_t{UINT32_MAX} >> layout.id_shift)) {
    return resource_exhausted("a KV cache of " + std::to_string(config.blocks) + " blocks is too large");
  }
  for (const KvFormat& format : formats_of(config)) {
    const size_t per_slab = layout.slab_bytes / config.format_bytes(format);
    if (per_slab == 0 || per_slab > kMostPerSlab) {
      return invalid_argument("blocks of " + std::string(kv_type_info(format.k_type).name) + " keys and " +
                              std::string(kv_type_info(format.v_type).name) +
                              " values do not go with the types that are written");
    }
  }
  ISTHMUS_ASSIGN_OR_RETURN(Charge charge, ledger.charge(MemoryKind::kKv, *bytes));
  ISTHMUS_ASSIGN_OR_RETURN(HugeArena arena, HugeArena::allocate(static_cast<size_t>(*bytes)));
  return std::shared_ptr<BlockPool>(new BlockPool(config, std::move(arena), std::move(charge)));
}

BlockPool::BlockPool(const BlockPoolConfig& config, HugeArena arena, Charge charge)
    : config_(config),
      layout_(config),
      arena_(std::move(arena)),
      charge_(std::move(charge)),
      entries_(std::make_unique<Entry[]>(layout_.ids())),
      slabs_(layout_.slabs) {
  for (const KvFormat& format : formats_of(config)) {
    const size_t bytes = config.format_bytes(format);
    classes_.push_back({format, kv_part_bytes(format.k_type, KvPart::kKey, config.head_dim), bytes,
                        layout_.slab_bytes / bytes});
  }
  free_slabs_.reserve(layout_.slabs);
  for (size_t i = layout_.slabs; i > 0; --i) free_slabs_.push_back(static_cast<uint32_t>(i - 1));
}

size_t BlockPool::free_blocks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return available(classes_.front());
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

Status BlockPool::allocate(size_t n, std::vector<BlockId>& out) { return take_some(n, 0, out); }

bool BlockPool::has_format(KvFormat format) const {
  return std::any_of(classes_.begin(), classes_.end(),
                     [&](const Class& blocks) { return blocks.format == format; });
}

Result<BlockId> BlockPool::allocate_coded(KvFormat format) {
  const auto found = std::find_if(classes_.begin(), classes_.end(),
                                  [&](const Class& blocks) { return blocks.format == format; });
  if (found == classes_.end()) return internal_error("the pool has no blocks of this format");
  std::vector<BlockId> out;
  ISTHMUS_RETURN_IF_ERROR(take_some(1, static_cast<size_t>(found - classes_.begin()), out));
  return out.front();
}

Status BlockPool::take_some(size_t n, size_t format, std::vector<BlockId>& out) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Class& blocks = classes_[format];
  const size_t all = layout_.slabs * blocks.per_slab;
  while (n > available(blocks) && n <= all) {
    const size_t missing = n - available(blocks);
    lock.unlock();
    const bool freed = reclaim(missing);
    lock.lock();
    if (!freed) break;
  }
  if (n > available(blocks)) {
    return resource_exhausted("the KV cache is full: " + std::to_string(n) + " blocks needed, " +
                              std::to_string(available(blocks)) + " of " + std::to_string(all) + " free");
  }
  const bool exact = kv_type_info(blocks.format.k_type).exact && kv_type_info(blocks.format.v_type).exact;
  for (size_t i = 0; i < n; ++i) {
    const BlockId id = take(format);
    entries_[id].owners.store(1, std::memory_order_relaxed);
    entries_[id].header = {};
    entries_[id].header.k_type = blocks.format.k_type;
    entries_[id].header.v_type = blocks.format.v_type;
    entries_[id].header.key_encoding = config_.key_encoding;
    entries_[id].header.exactness = exact ? Exactness::kExact : Exactness::kQuantised;
    out.push_back(id);
  }
  return ok_status();
}

/// A block of a format of which there is one.
BlockId BlockPool::take(size_t format) {
  Class& blocks = classes_[format];
  if (blocks.partial.empty()) open_slab(format);
  const uint32_t number = blocks.partial.back();
  Slab& slab = slabs_[number];
  size_t index = 0;
  while (slab.taken[index]) ++index;
  slab.taken.set(index);
  ++slab.used;
  --blocks.free;
  if (slab.used == blocks.per_slab) leave_partial(slab);
  return static_cast<BlockId>((size_t{number} << layout_.id_shift) + index);
}

void BlockPool::open_slab(size_t format) {
  Class& blocks = classes_[format];
  const uint32_t number = free_slabs_.back();
  free_slabs_.pop_back();
  Slab& slab = slabs_[number];
  slab.format = static_cast<uint8_t>(format);
  slab.place = static_cast<uint32_t>(blocks.partial.size());
  blocks.partial.push_back(number);
  blocks.free += blocks.per_slab;
}

void BlockPool::leave_partial(Slab& slab) {
  auto& partial = classes_[slab.format].partial;
  partial[slab.place] = partial.back();
  slabs_[partial.back()].place = slab.place;
  partial.pop_back();
}

void BlockPool::release(BlockId id) {
  if (entries_[id].owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t number = id >> layout_.id_shift;
  Slab& slab = slabs_[number];
  Class& blocks = classes_[slab.format];
  slab.taken.reset(id & ((BlockId{1} << layout_.id_shift) - 1));
  if (slab.used == blocks.per_slab) {
    slab.place = static_cast<uint32_t>(blocks.partial.size());
    blocks.partial.push_back(number);
  }
  --slab.used;
  ++blocks.free;
  if (slab.used > 0) return;
  leave_partial(slab);
  blocks.free -= blocks.per_slab;
  free_slabs_.push_back(number);
}

}  // namespace isthmus
