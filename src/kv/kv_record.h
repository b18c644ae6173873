// The KV of whole blocks of a text as bytes, and back: what the flash tier and KV files hold.
//
// A record covers up to kKvRecordBlocks blocks of 32 tokens in all streams of a sequence, in the envelope of
// base/stored_record.h; docs/formats/kv-record.md has its bytes. Each block has a key: a digest over the key
// before it and its tokens, beginning with one over everything else that decides KV (KvSpace). A key finds a
// record; on a hit the tokens themselves are compared, and the shape comes from the model, never from the
// record: what does not fit is refused whole.
//
// Only complete blocks of one exactness and one arithmetic class are taken, and none of a sequence that gave
// up keys. Values; not thread-safe beside changes of the sequence. Errors: kCorrupt (not such a record),
// kUnsupported (another version), kFailedPrecondition (a good record of something else, or blocks that may
// not be kept; says what differs), kResourceExhausted (the pool has no blocks), kInternal (the digest
// function failed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "base/stored_record.h"
#include "kv/sequence.h"

namespace isthmus {

/// Most blocks of a record.
inline constexpr size_t kKvRecordBlocks = 8;

/// All that decides the KV of a text besides its tokens, and how it is stored. Equal, or no hit.
struct KvSpace {
  Digest identity{};  // of the model and whatever else its KV depends on
  Digest salt{};      // keeps apps apart
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  KeyEncoding key_encoding = KeyEncoding::kAbsolute;
  Exactness exactness = Exactness::kExact;  // of every block
  ComputeSet computed_by = 0;               // of every block
  /// What blocks are coded as, by layer, `residual` tokens at a time; empty: they are of the types above.
  std::vector<KvFormat> coded = {};
  uint32_t residual = 0;

  KvFormat format(size_t layer) const { return coded.empty() ? KvFormat{k_type, v_type} : coded[layer]; }
  /// Blocks that can only be taken together.
  size_t unit() const { return coded.empty() ? 1 : residual / kBlockKeys; }
  bool operator==(const KvSpace&) const = default;
};

/// The space of what `kv` holds or will hold when `compute` reads a text, as its pool stores it.
KvSpace kv_space(const KvSequence& kv, Compute compute, const Digest& identity, const Digest& salt);
/// Bytes of one block of tokens in all streams.
uint64_t kv_space_block_bytes(const KvSpace& space);

/// The keys of a text's whole blocks.
struct KvKeys {
  Digest root{};  // before the first block
  std::vector<Digest> blocks;
};
Result<KvKeys> kv_keys(const KvSpace& space, std::span<const int32_t> tokens, DigestFunction digest);

/// Blocks [first, first + count) of `kv`, whose committed text is `tokens`; keys has one of each of its
/// blocks. count is 1 to kKvRecordBlocks. Blocks that are not as `space` says are refused.
Result<std::vector<std::byte>> encode_kv_record(const KvSequence& kv, const KvSpace& space,
                                                const KvKeys& keys, std::span<const int32_t> tokens,
                                                size_t first, size_t count, const std::string& label);

/// How many of the first blocks of `kv`, at most `blocks`, are as `space` says.
size_t kv_blocks_as(const KvSequence& kv, const KvSpace& space, size_t blocks);

class KvRecord {
 public:
  /// A view: `bytes`, a whole record, must outlive it. Checks the form and every checksum.
  static Result<KvRecord> parse(std::span<const std::byte> bytes);

  const RecordHead& head() const { return head_; }
  /// As the record says of itself.
  const KvSpace& space() const { return space_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  size_t first_block() const { return head_.first_token / kBlockKeys; }
  size_t blocks() const { return head_.keys.size(); }

  /// OK, or kFailedPrecondition naming what differs.
  Status check_space(const KvSpace& wanted) const;
  /// kCorrupt unless the record's keys follow from its parent, and its parent, where it is the first, from
  /// its space.
  Status check_keys(DigestFunction digest) const;
  /// How many whole blocks of `text`, from the record's first on, have the record's tokens.
  size_t matching_blocks(std::span<const int32_t> text) const;
  /// Appends blocks [from, from + count) of the record to `kv`, which holds exactly the tokens before them
  /// and nothing pending. All or nothing. check_space() must have been OK for the space of `kv`.
  Status append_to(KvSequence& kv, size_t from, size_t count) const;

 private:
  Status allocate_blocks(BlockPool& pool, size_t streams, size_t count, std::vector<BlockId>& out) const;

  RecordHead head_;
  KvSpace space_;
  std::vector<int32_t> tokens_;
  std::span<const std::byte> data_;  // [stream][block][K part, V part]
};

}  // namespace isthmus
