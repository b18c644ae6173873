// Texts put together of parts, and parts of a text computed anew.
#include <algorithm>
#include <cstring>
#include <string>

#include "kv/sequence.h"

namespace isthmus {
namespace {

/// Ascending and below `length`, or what is wrong.
Status check_tokens(std::span<const uint32_t> tokens, size_t length) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= length || (i > 0 && tokens[i] <= tokens[i - 1])) {
      return invalid_argument("reopen: token " + std::to_string(tokens[i]) + " at place " +
                              std::to_string(i) + " does not ascend within " + std::to_string(length) +
                              " tokens");
    }
  }
  return ok_status();
}

}  // namespace

Status KvSequence::jump_to(size_t position) {
  if (pending_ > 0) return failed_precondition("jump_to: tokens are pending");
  if (position < positions_.of(length_)) {
    return invalid_argument("jump_to position " + std::to_string(position) + ", but the next one is " +
                            std::to_string(positions_.of(length_)));
  }
  if (position == positions_.of(length_)) return ok_status();
  if (key_encoding() != KeyEncoding::kAbsolute) {
    return unsupported("positions with gaps need keys that are rotated by absolute positions");
  }
  positions_.jump(length_, position);
  return ok_status();
}

Status KvSequence::check_source(const KvSequence& source, size_t from, size_t count) const {
  if (from > source.length_ || count > source.length_ - from) {
    return invalid_argument("append_copy: tokens " + std::to_string(from) + " to " +
                            std::to_string(from + count) + " of " + std::to_string(source.length_));
  }
  if (pruned() || source.pruned() || source.coded_until_ > from) {
    return failed_precondition("append_copy: keys were given up or are coded");
  }
  const BlockPoolConfig& mine = pool_->config();
  const BlockPoolConfig& other = source.pool_->config();
  const bool same = mine.open() == other.open() && mine.head_dim == other.head_dim &&
                    mine.key_encoding == other.key_encoding && layers_ == source.layers_ &&
                    kv_heads_ == source.kv_heads_;
  return same ? ok_status() : failed_precondition("append_copy: the source stores keys in another form");
}

Status KvSequence::append_copy(const KvSequence& source, size_t from, size_t count, Exactness exactness) {
  ISTHMUS_RETURN_IF_ERROR(check_source(source, from, count));
  const size_t to = length_;
  ISTHMUS_RETURN_IF_ERROR(grow(count));
  for (size_t stream = 0; stream < streams_.size(); ++stream) copy_stream(source, stream, from, to, count);
  raise_exactness(to, to + count, exactness);
  commit(count);
  return ok_status();
}

void KvSequence::copy_stream(const KvSequence& source, size_t stream, size_t from, size_t to, size_t count) {
  const BlockPoolConfig& config = pool_->config();
  const auto copy = [&](KvType type, KvPart part, const std::byte* in, std::byte* out, size_t n) {
    if (n == kBlockKeys) {
      std::memcpy(out, in, kv_part_bytes(type, part, config.head_dim));
    } else {
      kv_copy(type, part, in, from % kBlockKeys, out, to % kBlockKeys, n, config.head_dim);
    }
  };
  while (count > 0) {
    const size_t n = std::min({count, kBlockKeys - from % kBlockKeys, kBlockKeys - to % kBlockKeys});
    const BlockId in = source.streams_[stream].ids[from / kBlockKeys];
    const BlockId out = streams_[stream].ids[to / kBlockKeys];
    copy(config.k_type, KvPart::kKey, source.pool_->k(in), pool_->k(out), n);
    copy(config.v_type, KvPart::kValue, source.pool_->v(in), pool_->v(out), n);
    BlockHeader& header = pool_->header(out);
    header.computed_by |= source.pool_->header(in).computed_by;
    header.exactness = std::max(header.exactness, source.pool_->header(in).exactness);
    from += n;
    to += n;
    count -= n;
  }
}

Status KvSequence::append_blank(size_t count, Exactness exactness) {
  if (pruned()) return failed_precondition("append_blank: keys were given up");
  const size_t from = length_;
  ISTHMUS_RETURN_IF_ERROR(grow(count));
  raise_exactness(from, from + count, exactness);
  commit(count);
  return ok_status();
}

Status KvSequence::append_zeros(size_t count) {
  const size_t dim = pool_->config().head_dim;
  const std::vector<float> zeros(count * dim);
  ISTHMUS_RETURN_IF_ERROR(grow(count));
  for (size_t layer = 0; layer < layers_; ++layer) {
    for (size_t head = 0; head < kv_heads_; ++head) {
      write_rows(layer, head, length_, count, zeros.data(), zeros.data(), dim);
    }
  }
  commit(count);
  return ok_status();
}

void KvSequence::raise_exactness(size_t from, size_t to, Exactness exactness) {
  if (from == to) return;
  for (auto& stream : streams_) {
    for (size_t block = from / kBlockKeys; block <= (to - 1) / kBlockKeys; ++block) {
      BlockHeader& header = pool_->header(stream.ids[block]);
      header.exactness = std::max(header.exactness, exactness);
    }
  }
}

void KvSequence::turn_keys(size_t layer, size_t from, size_t count, const RopeTable& rope, int32_t by) {
  const BlockPoolConfig& config = pool_->config();
  std::vector<float> row(rope.row_floats());
  rope.row(by, row.data());
  // A turn changes no length.
  for (float& x : row) x = static_cast<float>(x / rope.magnitude());
  std::vector<float> key(config.head_dim);
  for (size_t head = 0; head < kv_heads_; ++head) {
    const Stream& stream = at(layer, head);
    for (size_t token = from; token < from + count; ++token) {
      std::byte* block = pool_->k(stream.ids[token / kBlockKeys]);
      kv_read(config.k_type, KvPart::kKey, block, token % kBlockKeys, key.data(), config.head_dim);
      rope.rotate_by(row.data(), key.data(), 1, config.head_dim);
      kv_write(config.k_type, KvPart::kKey, block, token % kBlockKeys, key.data(), config.head_dim);
    }
  }
}

Status KvSequence::reopen(std::span<const uint32_t> tokens) {
  ISTHMUS_RETURN_IF_ERROR(check_tokens(tokens, length_));
  if (tokens.empty()) return ok_status();
  if (pruned()) return failed_precondition("reopen: keys were given up");
  std::vector<uint32_t> blocks = reopened_;
  for (const uint32_t token : tokens) blocks.push_back(token / kBlockKeys);
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  size_t shared = 0;
  for (const auto& stream : streams_) {
    const auto coded = std::find_if(blocks.begin(), blocks.end(),
                                    [&](uint32_t block) { return !is_written(stream, block); });
    if (coded != blocks.end()) {
      return failed_precondition("reopen: block " + std::to_string(*coded) + " is coded");
    }
    shared += static_cast<size_t>(std::count_if(
        blocks.begin(), blocks.end(), [&](uint32_t block) { return pool_->shared(stream.ids[block]); }));
  }
  std::vector<BlockId> fresh;
  ISTHMUS_RETURN_IF_ERROR(pool_->allocate(shared, fresh));
  std::span<const BlockId> rest(fresh);
  for (auto& stream : streams_) {
    for (const uint32_t block : blocks) own_block(stream, block, rest);
  }
  for (const BlockId id : rest) pool_->release(id);
  reopened_ = std::move(blocks);
  return ok_status();
}

bool KvSequence::is_open(size_t token) const {
  return std::binary_search(reopened_.begin(), reopened_.end(), static_cast<uint32_t>(token / kBlockKeys));
}

void KvSequence::close_reopened() {
  for (const uint32_t block : reopened_) {
    const bool full = (block + 1) * kBlockKeys <= length_;
    for (auto& stream : streams_) pool_->header(stream.ids[block]).sealed = full;
  }
  reopened_.clear();
}

}  // namespace isthmus
