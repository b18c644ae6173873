#include "kv/sequence.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "ops/aligned_bytes.h"

namespace isthmus {

KvSequence::KvSequence(std::shared_ptr<BlockPool> pool, size_t layers, size_t kv_heads)
    : pool_(std::move(pool)), layers_(layers), kv_heads_(kv_heads), streams_(layers * kv_heads) {}

KvSequence::KvSequence(KvSequence&& other) noexcept { *this = std::move(other); }

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = std::move(other.pool_);
    layers_ = other.layers_;
    kv_heads_ = other.kv_heads_;
    length_ = std::exchange(other.length_, 0);
    pending_ = std::exchange(other.pending_, 0);
    pruned_until_ = std::exchange(other.pruned_until_, 0);
    dropped_ = std::exchange(other.dropped_, 0);
    coded_until_ = std::exchange(other.coded_until_, 0);
    coding_put_off_ = std::exchange(other.coding_put_off_, false);
    coded_apart_ = std::exchange(other.coded_apart_, false);
    positions_ = std::exchange(other.positions_, {});
    reopened_ = std::exchange(other.reopened_, {});
    streams_ = std::exchange(other.streams_, {});
  }
  return *this;
}

KvBlockRef KvSequence::make_ref(BlockId id, size_t index) const {
  const BlockHeader& header = pool_->header(id);
  return KvBlockRef{pool_->k(id),        pool_->v(id),  static_cast<int32_t>(index * kBlockKeys),
                    header.key_encoding, header.k_type, header.v_type,
                    header.valid};
}

bool KvSequence::shares_open_tail(const Stream& stream) const {
  return (length_ - stream.removed) % kBlockKeys != 0 && pool_->shared(stream.ids.back());
}

/// Makes a block writable: its own again, or a copy, taken from `fresh`.
void KvSequence::own_block(Stream& stream, size_t index, std::span<const BlockId>& fresh) {
  const BlockId id = stream.ids[index];
  if (!pool_->shared(id)) {
    pool_->header(id).sealed = false;
    return;
  }
  const BlockId copy = fresh.front();
  fresh = fresh.subspan(1);
  std::memcpy(pool_->k(copy), pool_->k(id), pool_->block_bytes());
  pool_->header(copy) = pool_->header(id);
  pool_->header(copy).sealed = false;
  pool_->release(id);
  stream.ids[index] = copy;
  stream.refs[index] = make_ref(copy, index);
}

/// The last block, where it is part full.
void KvSequence::open_tail(Stream& stream, std::span<const BlockId>& fresh) {
  if ((length_ - stream.removed) % kBlockKeys != 0) own_block(stream, stream.ids.size() - 1, fresh);
}

Status KvSequence::grow(size_t n) {
  pending_ = 0;
  for (auto& stream : streams_) release_from(stream, blocks_for(stream, length_));
  if (n == 0) return ok_status();
  if (n > until_coding()) {
    return internal_error("a step of " + std::to_string(n) + " tokens goes beyond the next coding, in " +
                          std::to_string(until_coding()));
  }
  size_t needed = 0;
  for (const auto& stream : streams_) {
    needed += blocks_for(stream, length_ + n) - stream.ids.size() + (shares_open_tail(stream) ? 1 : 0);
  }
  std::vector<BlockId> fresh;
  fresh.reserve(needed);
  ISTHMUS_RETURN_IF_ERROR(pool_->allocate(needed, fresh));

  std::span<const BlockId> rest(fresh);
  for (auto& stream : streams_) {
    open_tail(stream, rest);
    while (stream.ids.size() < blocks_for(stream, length_ + n)) {
      stream.refs.push_back(make_ref(rest.front(), stream.ids.size()));
      stream.ids.push_back(rest.front());
      rest = rest.subspan(1);
    }
  }
  // A copy was counted for each shared tail; an owner that let go in between leaves blocks over.
  for (const BlockId id : rest) pool_->release(id);
  pending_ = n;
  return ok_status();
}

void KvSequence::set_pending_compute(Compute compute) {
  for (auto& stream : streams_) {
    for (size_t block = (length_ - stream.removed) / kBlockKeys; block < stream.ids.size(); ++block) {
      pool_->header(stream.ids[block]).computed_by |= compute_bit(compute);
    }
    for (const uint32_t block : reopened_) {
      pool_->header(stream.ids[block]).computed_by |= compute_bit(compute);
    }
  }
}

void KvSequence::write(size_t layer, size_t head, size_t slot, const float* k, const float* v) {
  const Stream& stream = at(layer, head);
  slot -= stream.removed;
  const BlockId id = stream.ids[slot / kBlockKeys];
  const auto& config = pool_->config();
  kv_write(config.k_type, KvPart::kKey, pool_->k(id), slot % kBlockKeys, k, config.head_dim);
  kv_write(config.v_type, KvPart::kValue, pool_->v(id), slot % kBlockKeys, v, config.head_dim);
}

void KvSequence::write_rows(size_t layer, size_t head, size_t slot, size_t n, const float* k, const float* v,
                            size_t ld) {
  const auto& config = pool_->config();
  const Stream& stream = at(layer, head);
  slot -= stream.removed;
  for (size_t done = 0; done < n;) {
    const size_t inside = (slot + done) % kBlockKeys;
    const size_t count = std::min(kBlockKeys - inside, n - done);
    const BlockId id = stream.ids[(slot + done) / kBlockKeys];
    kv_write_rows(config.k_type, KvPart::kKey, pool_->k(id), inside, count, k + done * ld, ld,
                  config.head_dim);
    kv_write_rows(config.v_type, KvPart::kValue, pool_->v(id), inside, count, v + done * ld, ld,
                  config.head_dim);
    done += count;
  }
}

void KvSequence::seal_full_blocks(size_t from, size_t to) {
  for (auto& stream : streams_) {
    const size_t end = (to - stream.removed) / kBlockKeys;
    for (size_t block = (from - stream.removed) / kBlockKeys; block < end; ++block) {
      pool_->header(stream.ids[block]).sealed = true;
    }
  }
}

void KvSequence::commit(size_t n) {
  close_reopened();
  const size_t before = length_;
  length_ += n < pending_ ? n : pending_;
  pending_ = 0;
  for (auto& stream : streams_) release_from(stream, blocks_for(stream, length_));
  seal_full_blocks(before, length_);
  if (codes() && codings(length_) > codings(before)) code_full_blocks();
}

Status KvSequence::accept(std::span<const uint32_t> path) {
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] >= pending_ || path[i] < i || (i > 0 && path[i] <= path[i - 1])) {
      return invalid_argument("accept: index " + std::to_string(path[i]) + " at place " + std::to_string(i) +
                              " is not an ascending path of " + std::to_string(pending_) + " pending tokens");
    }
  }
  for (auto& stream : streams_) {
    for (size_t i = 0; i < path.size(); ++i) {
      const size_t place = length_ - stream.removed;
      if (path[i] != i) move_slot(stream, place + path[i], place + i);
    }
  }
  commit(path.size());
  return ok_status();
}

void KvSequence::move_slot(const Stream& stream, size_t from, size_t to) {
  copy_key(pool_->k(stream.ids[from / kBlockKeys]), from, pool_->k(stream.ids[to / kBlockKeys]), to);
}

void KvSequence::copy_key(const std::byte* source, size_t from, std::byte* target, size_t to) const {
  const auto& config = pool_->config();
  const size_t v_at = kv_part_bytes(config.k_type, KvPart::kKey, config.head_dim);
  kv_copy(config.k_type, KvPart::kKey, source, from % kBlockKeys, target, to % kBlockKeys, 1,
          config.head_dim);
  kv_copy(config.v_type, KvPart::kValue, source + v_at, from % kBlockKeys, target + v_at, to % kBlockKeys, 1,
          config.head_dim);
}

Status KvSequence::truncate(size_t length) {
  if (length > length_) {
    return invalid_argument("truncate to " + std::to_string(length) + " tokens, but the sequence has " +
                            std::to_string(length_));
  }
  if (length == 0) {
    clear();
    return ok_status();
  }
  if (length >= pruned_until_ && reachable(length) < length) {
    return failed_precondition("truncate to " + std::to_string(length) +
                               " tokens, but they are coded together with later ones; " +
                               std::to_string(reachable(length)) + " can be left");
  }
  if (length < pruned_until_) {
    return failed_precondition("truncate to " + std::to_string(length) +
                               " tokens, but keys of tokens before " + std::to_string(pruned_until_) +
                               " were given up");
  }
  length_ = length;
  pending_ = 0;
  coded_until_ = std::min(coded_until_, length);
  reopened_.clear();
  positions_.cut(length);
  for (auto& stream : streams_) release_from(stream, blocks_for(stream, length_));
  return ok_status();
}

Status KvSequence::keep_keys(size_t layer, size_t head, std::span<const uint32_t> kept) {
  if (key_encoding() != KeyEncoding::kAbsolute) {
    return failed_precondition("keys cannot be taken out: their places say their positions");
  }
  Stream& stream = at(layer, head);
  const size_t held = length_ - stream.removed;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] >= held || (i > 0 && kept[i] <= kept[i - 1])) {
      return invalid_argument("keep_keys: " + std::to_string(kept[i]) + " at place " + std::to_string(i) +
                              " does not ascend within " + std::to_string(held) + " keys");
    }
  }
  commit(0);
  if (kept.size() == held) return ok_status();
  if (coded_until_ > 0) return failed_precondition("keys cannot be taken out: their blocks are coded");
  ISTHMUS_RETURN_IF_ERROR(regroup(stream, kept, held));
  stream.removed += held - kept.size();
  pruned_until_ = length_;
  return ok_status();
}

/// Where the keys of a stream go that gives up some: whole blocks stay as they are under another place, the
/// others are put together anew.
struct KvSequence::Regrouping {
  static constexpr size_t kPutTogether = SIZE_MAX;
  std::vector<size_t> whole;  // [new block]: the block that it is, or kPutTogether
  std::vector<bool> kept;     // [old block]: it is one of those

  Regrouping(std::span<const uint32_t> keys, size_t held) : kept((held + kBlockKeys - 1) / kBlockKeys) {
    for (size_t at = 0; at < keys.size(); at += kBlockKeys) {
      const auto part = keys.subspan(at, std::min(kBlockKeys, keys.size() - at));
      const size_t block = part[0] / kBlockKeys;
      const size_t here = std::min(kBlockKeys, held - block * kBlockKeys);
      const bool is_whole =
          part[0] % kBlockKeys == 0 && part.size() == here && part.back() - part[0] + 1 == here;
      whole.push_back(is_whole ? block : kPutTogether);
      if (is_whole) kept[block] = true;
    }
  }
};

Status KvSequence::regroup(Stream& stream, std::span<const uint32_t> keys, size_t held) {
  const Regrouping plan(keys, held);
  const std::vector<BlockId> source = stream.ids;
  // A block put together at place i takes keys up to or beyond the last of old block i, so that one is free
  // by then.
  std::vector<BlockId> target(plan.whole.size());
  std::vector<size_t> without;  // new blocks that need memory of their own
  std::vector<BlockId> free;
  for (size_t i = 0; i < target.size(); ++i) {
    if (!plan.kept[i] && !pool_->shared(source[i])) free.push_back(source[i]);
    if (plan.whole[i] != Regrouping::kPutTogether) {
      target[i] = source[plan.whole[i]];
    } else if (free.empty()) {
      without.push_back(i);
    } else {
      target[i] = free.back();
      free.pop_back();
    }
  }
  std::vector<BlockId> fresh;
  ISTHMUS_RETURN_IF_ERROR(pool_->allocate(without.size(), fresh));
  for (size_t i = 0; i < fresh.size(); ++i) target[without[i]] = fresh[i];
  ComputeSet computed = 0;
  Exactness worst = Exactness::kExact;
  for (const BlockId id : source) {
    computed |= pool_->header(id).computed_by;
    worst = std::max(worst, pool_->header(id).exactness);
  }
  const AlignedBytes scratch = aligned_bytes(pool_->block_bytes(), kVectorBytes);
  if (scratch == nullptr) {
    for (const BlockId id : fresh) pool_->release(id);
    return resource_exhausted("no memory to regroup the keys of a stream");
  }
  for (size_t i = 0; i < target.size(); ++i) {
    if (plan.whole[i] != Regrouping::kPutTogether) continue;
    const auto part = keys.subspan(i * kBlockKeys, std::min(kBlockKeys, keys.size() - i * kBlockKeys));
    std::byte* to = scratch.get();
    for (size_t slot = 0; slot < part.size(); ++slot) {
      copy_key(pool_->k(source[part[slot] / kBlockKeys]), part[slot], to, slot);
    }
    std::memcpy(pool_->k(target[i]), to, pool_->block_bytes());
    BlockHeader& header = pool_->header(target[i]);
    header.computed_by = computed;
    header.exactness = worst;
    header.sealed = part.size() == kBlockKeys;
  }
  std::vector<BlockId> used = target;
  std::sort(used.begin(), used.end());
  std::vector<BlockId> gone;
  std::copy_if(source.begin(), source.end(), std::back_inserter(gone),
               [&](BlockId id) { return !std::binary_search(used.begin(), used.end(), id); });
  stream.ids = std::move(target);
  stream.refs.clear();
  for (size_t i = 0; i < stream.ids.size(); ++i) stream.refs.push_back(make_ref(stream.ids[i], i));
  for (const BlockId id : gone) pool_->release(id);
  return ok_status();
}

Status KvSequence::drop_blocks(size_t first, size_t count) {
  if (key_encoding() == KeyEncoding::kAbsolute) {
    return failed_precondition("blocks cannot move: their keys are rotated by absolute positions");
  }
  if (pruned()) return failed_precondition("blocks cannot move: keys were given up");
  if (first > length_ / kBlockKeys || count > length_ / kBlockKeys - first) {
    return invalid_argument("blocks " + std::to_string(first) + " to " + std::to_string(first + count) +
                            " are not all full: the sequence has " + std::to_string(length_) + " tokens");
  }
  commit(0);
  for (auto& stream : streams_) {
    const auto begin = stream.ids.begin() + static_cast<ptrdiff_t>(first);
    const auto end = begin + static_cast<ptrdiff_t>(count);
    std::for_each(begin, end, [&](BlockId id) { pool_->release(id); });
    stream.ids.erase(begin, end);
    stream.refs.resize(stream.ids.size());
    for (size_t i = first; i < stream.ids.size(); ++i) stream.refs[i] = make_ref(stream.ids[i], i);
  }
  length_ -= count * kBlockKeys;
  dropped_ += count * kBlockKeys;
  coded_until_ -= std::min(coded_until_, count * kBlockKeys);
  return ok_status();
}

Exactness KvSequence::exactness() const {
  Exactness worst = Exactness::kExact;
  for (const auto& stream : streams_) {
    for (const BlockId id : stream.ids) worst = std::max(worst, pool_->header(id).exactness);
  }
  return worst;
}

ComputeSet KvSequence::computed_by() const {
  ComputeSet all = 0;
  for (const auto& stream : streams_) {
    for (const BlockId id : stream.ids) all |= pool_->header(id).computed_by;
  }
  return all;
}

void KvSequence::clear() {
  length_ = 0;
  pending_ = 0;
  pruned_until_ = 0;
  dropped_ = 0;
  coded_until_ = 0;
  coded_apart_ = false;
  positions_.clear();
  reopened_.clear();
  for (auto& stream : streams_) {
    release_from(stream, 0);
    stream.removed = 0;
  }
}

void KvSequence::release_from(Stream& stream, size_t first_block) {
  while (stream.ids.size() > first_block) {
    pool_->release(stream.ids.back());
    stream.ids.pop_back();
    stream.refs.pop_back();
  }
}

KvSequence KvSequence::fork() const {
  KvSequence out(pool_, layers_, kv_heads_);
  out.length_ = length_;
  out.pruned_until_ = pruned_until_;
  out.dropped_ = dropped_;
  out.coded_until_ = coded_until_;
  out.coding_put_off_ = coding_put_off_;
  out.coded_apart_ = coded_apart_;
  out.positions_ = positions_;
  for (size_t s = 0; s < streams_.size(); ++s) {
    const Stream& from = streams_[s];
    Stream& to = out.streams_[s];
    const size_t keep = blocks_for(from, length_);
    to.removed = from.removed;
    to.ids.assign(from.ids.begin(), from.ids.begin() + static_cast<ptrdiff_t>(keep));
    to.refs.assign(from.refs.begin(), from.refs.begin() + static_cast<ptrdiff_t>(keep));
    for (const BlockId id : to.ids) pool_->retain(id);
  }
  return out;
}

void KvSequence::share_block(size_t index, std::vector<BlockId>& out) const {
  for (const auto& stream : streams_) {
    out.push_back(stream.ids[index]);
    pool_->retain(stream.ids[index]);
  }
}

void KvSequence::append_shared(std::span<const BlockId> blocks, size_t tokens) {
  for (size_t s = 0; s < streams_.size(); ++s) {
    pool_->retain(blocks[s]);
    streams_[s].refs.push_back(make_ref(blocks[s], streams_[s].ids.size()));
    streams_[s].ids.push_back(blocks[s]);
  }
  length_ += tokens;
  const auto is_coded = [&](BlockId id) {
    const BlockHeader& header = pool_->header(id);
    return KvFormat{header.k_type, header.v_type} != pool_->config().open();
  };
  if (std::any_of(blocks.begin(), blocks.end(), is_coded)) coded_until_ = length_;
}

void KvSequence::replace_block(size_t index, std::span<const BlockId> blocks) {
  for (size_t s = 0; s < streams_.size(); ++s) {
    BlockId& mine = streams_[s].ids[index];
    if (mine == blocks[s]) continue;
    pool_->retain(blocks[s]);
    pool_->release(mine);
    mine = blocks[s];
    streams_[s].refs[index] = make_ref(mine, index);
  }
}

bool KvSequence::tail_is_shared() const { return shares_open_tail(streams_.front()); }

KvStreamRef KvSequence::stream(size_t layer, size_t head) const {
  const Stream& s = streams_[layer * kv_heads_ + head];
  return KvStreamRef{s.refs, length_ + pending_ - s.removed, s.removed};
}

size_t KvSequence::blocks() const {
  size_t n = 0;
  for (const auto& stream : streams_) n += stream.ids.size();
  return n;
}

uint64_t KvSequence::bytes() const {
  uint64_t n = 0;
  for (const auto& stream : streams_) {
    for (const BlockId id : stream.ids) n += pool_->block_bytes(id);
  }
  return n;
}

}  // namespace isthmus
