// What full blocks become, and how far a coded text can go back.
#include <algorithm>
#include <cstring>
#include <string>

#include "kv/sequence.h"

namespace isthmus {

size_t KvSequence::until_coding() const {
  if (!codes()) return SIZE_MAX;
  const size_t residual = pool_->config().residual;
  return residual - (length_ + dropped_ + pending_) % residual;
}

void KvSequence::code_now() {
  coding_put_off_ = false;
  if (!codes() || length_ == 0) return;
  commit(0);
  coded_apart_ = true;
  code_full_blocks();
}

void KvSequence::code_full_blocks() {
  const auto& config = pool_->config();
  for (size_t s = 0; s < streams_.size(); ++s) {
    const KvFormat format = config.coded[s / kv_heads_];
    if (format == config.open()) continue;
    Stream& stream = streams_[s];
    for (size_t i = 0; i < (length_ - stream.removed) / kBlockKeys; ++i) code_block(stream, i, format);
  }
  coded_until_ = length_;
}

bool KvSequence::is_written(const Stream& stream, size_t index) const {
  const BlockHeader& header = pool_->header(stream.ids[index]);
  return KvFormat{header.k_type, header.v_type} == pool_->config().open();
}

bool KvSequence::coded(size_t block) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [&](const Stream& stream) { return !is_written(stream, block); });
}

/// A full pool leaves the block as it is: it is tried again with the next ones.
void KvSequence::code_block(Stream& stream, size_t index, KvFormat format) {
  if (!is_written(stream, index)) return;
  const auto coded = pool_->allocate_coded(format);
  if (coded.ok()) put_coded(stream, index, *coded);
}

/// Codes a block as written into `coded`, which takes its place.
void KvSequence::put_coded(Stream& stream, size_t index, BlockId coded) {
  const BlockId from = stream.ids[index];
  const BlockHeader& header = pool_->header(from);
  BlockHeader& to = pool_->header(coded);
  const auto put = [&](KvPart part, KvType from_type, const std::byte* in, KvType type, std::byte* out) {
    const size_t head_dim = pool_->config().head_dim;
    if (type == from_type) {
      std::memcpy(out, in, kv_part_bytes(type, part, head_dim));
    } else {
      kv_encode(from_type, part, in, type, out, head_dim);
    }
  };
  put(KvPart::kKey, header.k_type, pool_->k(from), to.k_type, pool_->k(coded));
  put(KvPart::kValue, header.v_type, pool_->v(from), to.v_type, pool_->v(coded));
  to.computed_by = header.computed_by;
  to.exactness = std::max(header.exactness, Exactness::kQuantised);
  to.valid = header.valid;
  to.sealed = true;
  stream.ids[index] = coded;
  stream.refs[index] = make_ref(coded, index);
  pool_->release(from);
}

Status KvSequence::recode(size_t index, KvFormat format) {
  if (index >= length_ / kBlockKeys) {
    return invalid_argument("recode: block " + std::to_string(index) + " of " + std::to_string(length_) +
                            " tokens is not full");
  }
  if (pruned()) return failed_precondition("recode: keys were given up");
  if (!pool_->has_format(format)) return internal_error("recode: the pool has no blocks of this format");
  std::vector<Stream*> anew;
  for (auto& stream : streams_) {
    const BlockHeader& header = pool_->header(stream.ids[index]);
    if (KvFormat{header.k_type, header.v_type} == format) continue;
    if (!is_written(stream, index)) {
      return failed_precondition("recode: block " + std::to_string(index) + " is coded in another way");
    }
    anew.push_back(&stream);
  }
  std::vector<BlockId> fresh;
  for (size_t i = 0; i < anew.size(); ++i) {
    const auto id = pool_->allocate_coded(format);
    if (!id.ok()) {
      for (const BlockId taken : fresh) pool_->release(taken);
      return id.status();
    }
    fresh.push_back(*id);
  }
  for (size_t i = 0; i < anew.size(); ++i) put_coded(*anew[i], index, fresh[i]);
  if (!anew.empty()) coded_until_ = std::max(coded_until_, (index + 1) * kBlockKeys);
  return ok_status();
}

size_t KvSequence::reachable(size_t length) const {
  length = std::min(length, length_);
  if (length < pruned_until_) return 0;
  if (length >= coded_until_) return length;
  if (pool_->config().coded.empty()) return length / kBlockKeys * kBlockKeys;  // each block by itself
  if (coded_apart_ || dropped_ > 0) return 0;
  return codings(length) * pool_->config().residual;
}

}  // namespace isthmus
