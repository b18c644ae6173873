#include "kv/sequence.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

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

Status KvSequence::grow(size_t n) {
  pending_ = 0;
  for (auto& stream : streams_) release_from(stream, (length_ + kBlockKeys - 1) / kBlockKeys);
  if (n == 0) return ok_status();
  const size_t have = (length_ + kBlockKeys - 1) / kBlockKeys;
  const size_t want = (length_ + n + kBlockKeys - 1) / kBlockKeys;
  const bool open_tail = length_ % kBlockKeys != 0;

  size_t needed = (want - have) * streams_.size();
  if (open_tail) {
    for (const auto& stream : streams_) needed += pool_->shared(stream.ids.back()) ? 1 : 0;
  }
  std::vector<BlockId> fresh;
  fresh.reserve(needed);
  ISTHMUS_RETURN_IF_ERROR(pool_->allocate(needed, fresh));

  size_t next = 0;
  for (auto& stream : streams_) {
    if (open_tail) {
      const BlockId tail = stream.ids.back();
      if (pool_->shared(tail)) {
        const BlockId copy = fresh[next++];
        std::memcpy(pool_->k(copy), pool_->k(tail), pool_->block_bytes());
        pool_->header(copy) = pool_->header(tail);
        pool_->header(copy).sealed = false;
        pool_->release(tail);
        stream.ids.back() = copy;
        stream.refs.back() = make_ref(copy, have - 1);
      } else {
        pool_->header(tail).sealed = false;
      }
    }
    for (size_t i = have; i < want; ++i) {
      stream.ids.push_back(fresh[next]);
      stream.refs.push_back(make_ref(fresh[next], i));
      ++next;
    }
  }
  // A copy was counted for each shared tail; an owner that let go in between leaves blocks over.
  for (; next < fresh.size(); ++next) pool_->release(fresh[next]);
  pending_ = n;
  return ok_status();
}

void KvSequence::set_pending_compute(Compute compute) {
  for (auto& stream : streams_) {
    for (size_t block = length_ / kBlockKeys; block < stream.ids.size(); ++block) {
      pool_->header(stream.ids[block]).computed_by |= compute_bit(compute);
    }
  }
}

void KvSequence::write(size_t layer, size_t head, size_t slot, const float* k, const float* v) {
  const BlockId id = at(layer, head).ids[slot / kBlockKeys];
  const auto& config = pool_->config();
  kv_write(config.k_type, KvPart::kKey, pool_->k(id), slot % kBlockKeys, k, config.head_dim);
  kv_write(config.v_type, KvPart::kValue, pool_->v(id), slot % kBlockKeys, v, config.head_dim);
}

void KvSequence::write_rows(size_t layer, size_t head, size_t slot, size_t n, const float* k, const float* v,
                            size_t ld) {
  const auto& config = pool_->config();
  for (size_t done = 0; done < n;) {
    const size_t inside = (slot + done) % kBlockKeys;
    const size_t count = std::min(kBlockKeys - inside, n - done);
    const BlockId id = at(layer, head).ids[(slot + done) / kBlockKeys];
    kv_write_rows(config.k_type, KvPart::kKey, pool_->k(id), inside, count, k + done * ld, ld,
                  config.head_dim);
    kv_write_rows(config.v_type, KvPart::kValue, pool_->v(id), inside, count, v + done * ld, ld,
                  config.head_dim);
    done += count;
  }
}

void KvSequence::seal_full_blocks(size_t from, size_t to) {
  for (size_t block = from / kBlockKeys; block < to / kBlockKeys; ++block) {
    for (auto& stream : streams_) pool_->header(stream.ids[block]).sealed = true;
  }
}

void KvSequence::commit(size_t n) {
  const size_t before = length_;
  length_ += n < pending_ ? n : pending_;
  pending_ = 0;
  for (auto& stream : streams_) release_from(stream, (length_ + kBlockKeys - 1) / kBlockKeys);
  seal_full_blocks(before, length_);
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
      if (path[i] != i) move_slot(stream, length_ + path[i], length_ + i);
    }
  }
  commit(path.size());
  return ok_status();
}

void KvSequence::move_slot(const Stream& stream, size_t from, size_t to) {
  const auto& config = pool_->config();
  const BlockId source = stream.ids[from / kBlockKeys];
  const BlockId target = stream.ids[to / kBlockKeys];
  kv_copy(config.k_type, KvPart::kKey, pool_->k(source), from % kBlockKeys, pool_->k(target), to % kBlockKeys,
          config.head_dim);
  kv_copy(config.v_type, KvPart::kValue, pool_->v(source), from % kBlockKeys, pool_->v(target),
          to % kBlockKeys, config.head_dim);
}

Status KvSequence::truncate(size_t length) {
  if (length > length_) {
    return invalid_argument("truncate to " + std::to_string(length) + " tokens, but the sequence has " +
                            std::to_string(length_));
  }
  length_ = length;
  pending_ = 0;
  for (auto& stream : streams_) release_from(stream, (length_ + kBlockKeys - 1) / kBlockKeys);
  return ok_status();
}

Status KvSequence::drop_blocks(size_t first, size_t count) {
  if (key_encoding() == KeyEncoding::kAbsolute) {
    return failed_precondition("blocks cannot move: their keys are rotated by absolute positions");
  }
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
  for (auto& stream : streams_) release_from(stream, 0);
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
  const size_t keep = (length_ + kBlockKeys - 1) / kBlockKeys;
  for (size_t s = 0; s < streams_.size(); ++s) {
    const Stream& from = streams_[s];
    Stream& to = out.streams_[s];
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

bool KvSequence::tail_is_shared() const {
  return length_ % kBlockKeys != 0 && pool_->shared(streams_.front().ids[length_ / kBlockKeys]);
}

KvStreamRef KvSequence::stream(size_t layer, size_t head) const {
  const Stream& s = streams_[layer * kv_heads_ + head];
  return KvStreamRef{s.refs, length_ + pending_, 0};
}

size_t KvSequence::blocks() const {
  size_t n = 0;
  for (const auto& stream : streams_) n += stream.ids.size();
  return n;
}

}  // namespace isthmus
