// The KV of one sequence: for every layer and KV head a stream, which is a list of blocks.
//
// Streams may hold different keys: keep_keys() makes a stream give up committed keys, and those that stay
// move together. What a stream gave up is gone; the sequence then cannot go back before that point.
//
// Where the pool's configuration says so, full blocks become coded ones (KIVI types) each time the length
// reaches a multiple of `residual`: a text is always held as if it had been read up to there in steps that
// stop at those multiples, and can go back to any of them, or to what is not coded yet. A pool that codes
// nothing by itself may have levels, to which single blocks are coded when asked (recode).
//
// A text may be put together of parts: copies of what another sequence holds (append_copy), places to be
// computed (append_blank), with gaps between their positions (jump_to). Committed tokens can be computed
// anew in place (reopen).
//
// Tokens enter in two steps: grow(n) makes room for n *pending* tokens at the end of every stream, the
// forward pass writes their K and V and attends to them, and commit() or accept() keeps them. Pending tokens
// may form a tree; accept() keeps one path of it. fork() shares all blocks; a shared block is copied when one
// of the owners writes to it, so forks never see each other. Not thread-safe, except that write() may be
// called for different slots from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/token_positions.h"
#include "ops/attention.h"

namespace isthmus {

class KvSequence {
 public:
  /// What a sequence keeps per block.
  static constexpr size_t kBookkeeping = sizeof(BlockId) + sizeof(KvBlockRef);

  KvSequence() = default;
  KvSequence(std::shared_ptr<BlockPool> pool, size_t layers, size_t kv_heads);
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;
  ~KvSequence() { clear(); }

  /// Committed tokens.
  size_t length() const { return length_; }
  /// Tokens between grow() and commit().
  size_t pending() const { return pending_; }

  /// Committed and pending tokens may grow by this many before blocks are coded: who wants the same bits for
  /// any split of a text stops there.
  size_t until_coding() const;
  /// Whether blocks are coded at all, and not put off.
  bool codes() const { return !pool_->config().coded.empty() && !coding_put_off_; }
  /// Puts coding off, for who will take keys out first, or codes all full blocks now and from now on. A full
  /// pool leaves blocks as they are.
  void put_off_coding() { coding_put_off_ = true; }
  void code_now();

  /// Makes slots [length, length + n) of every stream writable; drops tokens pending before. All or nothing:
  /// kResourceExhausted leaves the sequence as it was.
  Status grow(size_t n);
  /// Says which arithmetic computes the pending tokens: their blocks remember it.
  void set_pending_compute(Compute compute);
  /// Stores K and V (head_dim floats each, K rotated as key_encoding() says) of one token; slot < length +
  /// pending.
  void write(size_t layer, size_t head, size_t slot, const float* k, const float* v);
  /// The same for `n` tokens in a row; row i of k and v is at offset i * ld.
  void write_rows(size_t layer, size_t head, size_t slot, size_t n, const float* k, const float* v,
                  size_t ld);
  /// Keeps the first `n` pending tokens and forgets the others. n <= pending.
  void commit(size_t n);
  /// Keeps the pending tokens `path` (ascending indices into the pending ones: root to leaf) and forgets the
  /// others. Their K and V move to the slots that follow the committed ones, which is where their positions
  /// put them.
  Status accept(std::span<const uint32_t> path);
  /// Makes a stream hold only the keys `kept` of the `held_keys()` that it holds now, in ascending order;
  /// memory that comes free goes back to the pool at once. Pending tokens are forgotten. kFailedPrecondition
  /// when keys are not rotated by their absolute positions (places then say positions), kInvalidArgument when
  /// `kept` is not ascending or names a key that is not there, kResourceExhausted when blocks shared with
  /// others need a copy and there is no room; the stream is as it was then.
  Status keep_keys(size_t layer, size_t head, std::span<const uint32_t> kept);
  /// Committed keys that a stream holds.
  size_t held_keys(size_t layer, size_t head) const { return length_ - at(layer, head).removed; }
  /// Whether any stream gave up keys.
  bool pruned() const { return pruned_until_ > 0; }
  /// Tokens before this one may have no key any more; every stream holds those of the later ones.
  size_t pruned_until() const { return pruned_until_; }

  /// Takes `count` whole blocks out of every stream, from block `first` on; what follows moves up: its
  /// positions shrink by 32 * count, as a sliding cache wants it (Xiao et al. 2023, arXiv 2309.17453).
  /// Pending tokens are forgotten. kFailedPrecondition when keys are stored rotated by their absolute
  /// positions, kInvalidArgument when the blocks are not all full of committed tokens.
  Status drop_blocks(size_t first, size_t count);
  /// Forgets committed tokens from `length` on (and all pending ones). kInvalidArgument when it is longer
  /// than now, kFailedPrecondition when keys of tokens before that were given up since, or coded together
  /// with later ones. reachable() tells in advance.
  Status truncate(size_t length);
  /// The most tokens, at most `length`, that truncate() can leave; 0 is always possible.
  size_t reachable(size_t length) const;
  void clear();

  /// Position of a committed or pending token: its place in the text, unless jump_to() left gaps.
  size_t position(size_t token) const { return positions_.of(token); }
  /// The first token at `position` or behind it.
  size_t first_from(size_t position) const { return positions_.first_from(position); }
  /// Whether positions leave gaps.
  bool gaps() const { return positions_.gaps(); }
  /// The next token will stand at `position`. kInvalidArgument when that is before the position that follows
  /// the newest token, kUnsupported when keys are not rotated by absolute positions, kFailedPrecondition
  /// with pending tokens.
  Status jump_to(size_t position);
  /// Appends copies of tokens [from, from + count) of `source` as committed ones. Their keys must stand at
  /// the positions that they get here. The blocks are no more exact than `exactness`. All or nothing:
  /// kFailedPrecondition when the source gave up or coded keys or stores them in another form,
  /// kResourceExhausted, kInvalidArgument.
  Status append_copy(const KvSequence& source, size_t from, size_t count, Exactness exactness);
  /// Appends `count` committed tokens whose K and V are still to be computed: reopen().
  Status append_blank(size_t count, Exactness exactness);
  /// Gives a full block (of tokens 32 index and the 31 behind it) another format in every stream, from what
  /// was written: one that has it is left alone. All or nothing: kResourceExhausted, kFailedPrecondition when
  /// it is coded in yet another or keys were given up, kInvalidArgument when it is not full.
  Status recode(size_t index, KvFormat format);
  /// Rotates the keys of committed tokens [from, from + count) of one layer by `by` more positions; `rope` is
  /// the layer's. reopen() must have made them writable.
  void turn_keys(size_t layer, size_t from, size_t count, const RopeTable& rope, int32_t by);
  /// Appends committed tokens of zeros, to fill the last block: nobody may see them. The errors of grow().
  Status append_zeros(size_t count);
  /// Makes committed tokens (ascending) writable until the next commit(); blocks that others hold are copied.
  /// All or nothing: kFailedPrecondition when they were given up or are coded, kResourceExhausted,
  /// kInvalidArgument.
  Status reopen(std::span<const uint32_t> tokens);
  /// Whether a committed token can be written.
  bool is_open(size_t token) const;

  /// A second sequence with the same committed tokens: also the way to take a snapshot and to restore it.
  KvSequence fork() const;

  /// The blocks of all streams that hold tokens [32 index, 32 index + 32) of the committed text, appended to
  /// `out` with one more owner each. index < ceil(length / 32); the sequence is not pruned.
  void share_block(size_t index, std::vector<BlockId>& out) const;
  /// Takes such blocks in as the next `tokens` committed tokens, 1 to 32: one more owner each. The length
  /// must be a multiple of 32, and nothing pending.
  void append_shared(std::span<const BlockId> blocks, size_t tokens);
  /// Puts such blocks, which hold the same tokens, in the place of the sequence's own. Nothing may be
  /// pending.
  void replace_block(size_t index, std::span<const BlockId> blocks);
  /// Whether the next token needs a copy of the last block, which others hold, too.
  bool tail_is_shared() const;

  /// What attention reads: committed and pending keys of one stream. Valid until the next change.
  KvStreamRef stream(size_t layer, size_t head) const;

  /// How the forward pass has to rotate the keys that it writes.
  KeyEncoding key_encoding() const { return pool_->config().key_encoding; }
  /// The worst of all blocks, and every arithmetic class that wrote one.
  Exactness exactness() const;
  ComputeSet computed_by() const;
  /// Of one block of a stream.
  ComputeSet computed_by(size_t layer, size_t head, size_t block) const {
    return pool_->header(at(layer, head).ids[block]).computed_by;
  }
  /// Whether a block is coded in any stream.
  bool coded(size_t block) const;

  size_t layers() const { return layers_; }
  size_t kv_heads() const { return kv_heads_; }
  /// Blocks held, shared ones included, and their bytes.
  size_t blocks() const;
  uint64_t bytes() const;
  const std::shared_ptr<BlockPool>& pool() const { return pool_; }

 private:
  struct Stream {
    std::vector<BlockId> ids;
    std::vector<KvBlockRef> refs;  // parallel to ids
    size_t removed = 0;            // committed keys given up: token t stands at place t - removed
  };
  Stream& at(size_t layer, size_t head) { return streams_[layer * kv_heads_ + head]; }
  const Stream& at(size_t layer, size_t head) const { return streams_[layer * kv_heads_ + head]; }
  /// Blocks that the first `tokens` tokens take in a stream.
  static size_t blocks_for(const Stream& stream, size_t tokens) {
    return (tokens - stream.removed + kBlockKeys - 1) / kBlockKeys;
  }
  bool shares_open_tail(const Stream& stream) const;
  void own_block(Stream& stream, size_t index, std::span<const BlockId>& fresh);
  void open_tail(Stream& stream, std::span<const BlockId>& fresh);
  KvBlockRef make_ref(BlockId id, size_t index) const;
  struct Regrouping;
  Status regroup(Stream& stream, std::span<const uint32_t> keys, size_t held);
  void move_slot(const Stream& stream, size_t from, size_t to);
  /// K and V of place `from` % 32 of one block to place `to` % 32 of another.
  void copy_key(const std::byte* source, size_t from, std::byte* target, size_t to) const;
  void release_from(Stream& stream, size_t first_block);
  void seal_full_blocks(size_t from, size_t to);
  /// Codings up to a length, those of dropped tokens included: dropping moves no coding.
  size_t codings(size_t length) const { return (length + dropped_) / pool_->config().residual; }
  void close_reopened();
  void raise_exactness(size_t from, size_t to, Exactness exactness);
  Status check_source(const KvSequence& source, size_t from, size_t count) const;
  void copy_stream(const KvSequence& source, size_t stream, size_t from, size_t to, size_t count);
  void code_full_blocks();
  void code_block(Stream& stream, size_t index, KvFormat format);
  void put_coded(Stream& stream, size_t index, BlockId coded);
  bool is_written(const Stream& stream, size_t index) const;

  std::shared_ptr<BlockPool> pool_;
  size_t layers_ = 0;
  size_t kv_heads_ = 0;
  size_t length_ = 0;
  size_t pending_ = 0;
  size_t pruned_until_ = 0;  // keys of tokens before this one may be gone
  size_t dropped_ = 0;       // tokens that drop_blocks() took out
  size_t coded_until_ = 0;   // full blocks of tokens before this one are coded
  bool coding_put_off_ = false;
  bool coded_apart_ = false;  // not at multiples of the residual
  TokenPositions positions_;
  std::vector<uint32_t> reopened_;  // blocks, ascending
  std::vector<Stream> streams_;     // [layer][kv head]
};

}  // namespace isthmus
