// Attention over blocked KV: causal, windowed, or over a token tree; grouped queries; one call serves a batch
// of sequences (prompt chunks and single tokens mixed).
//
// Words: a *row* is one query head of one token; the rows of a KV head's group share each pass over its K and
// V. Keys go in *ranges* of 256; each range gives (max, sum, acc) and ranges are combined in ascending order,
// so a row's result has the same bits at any thread count, batch or instruction set (Milakov and Gimelshein
// 2018, arXiv 1805.02867). Everything is a view: the caller owns all memory and keeps it alive for the call.
// Arithmetic is float32, or whole numbers of 16 bits where the caller asks for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/kv_block.h"
#include "ops/rope.h"
#include "threads/pool.h"

namespace isthmus {

/// How the keys of a block were rotated before they were stored.
enum class KeyEncoding : uint8_t {
  kAbsolute,       // by their position in the sequence
  kBlockRelative,  // by their offset in the block (slot); the block's base position is a property of the
                   // reference
  kUnrotated,      // not at all; attention rotates them after reading
};

/// All that attention knows of a block comes with it, so that blocks of one stream may differ in type and
/// encoding.
struct KvBlockRef {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  int32_t base_pos = 0;  // position of slot 0; slot j stands at base_pos + j. Unused for kAbsolute.
  KeyEncoding encoding = KeyEncoding::kAbsolute;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  uint32_t valid =
      ~uint32_t{0};  // bit j: slot j holds a key. Nobody sees the others; their V must be finite.
};

/// The KV of one layer and one KV head: `keys` keys in blocks of 32, in order; the last block may be part
/// full. A stream that gave up keys which other streams of the sequence still hold says how many: its key j
/// counts as key removed + j of the sequence in a QueryView.
struct KvStreamRef {
  std::span<const KvBlockRef> blocks;  // at least ceil(keys / 32)
  size_t keys = 0;
  size_t removed = 0;
};

/// What one query token sees: key j of the sequence is visible iff first_key <= j < end_key and (j <
/// tree_begin or bit j - tree_begin of tree_mask is set), and its block holds it. Bit b is bit b % 64 of word
/// b / 64. tree_mask null: tree_begin is ignored; else tree_begin >= removed of every stream. A token that
/// sees no key gets zeros.
struct QueryView {
  uint32_t first_key;
  uint32_t end_key;
  int32_t pos;  // the token's position: used only when queries come unrotated
  const uint64_t* tree_mask;
  uint32_t tree_begin;
};

/// The tokens of one sequence in this batch.
struct AttentionSeq {
  size_t first_token;                  // row of q and out
  size_t tokens;                       // >= 1
  std::span<const KvStreamRef> heads;  // one per KV head
  std::span<const QueryView> views;    // one per token
};

/// How scores and weighted sums are computed.
enum class AttentionCompute : uint8_t {
  kF32,
  /// Keys and queries, then values and weights, as 16-bit whole numbers with exact sums
  /// (kernels/generic/attention_kernels.h), for blocks of kF16 and kBF16. What a token sees only in part
  /// stays float32: such a block, and a range of 256 keys whose first block it does not see whole. So a
  /// token's result does not depend on later keys, nor on what tokens it is computed with. Ranges that reach
  /// into a token tree, and calls with a rope, are kF32.
  kInt16,
};

struct AttentionArgs {
  const float* q;  // [token][n_heads * head_dim], row stride ldq
  size_t ldq;
  float* out;  // [token][n_heads * head_dim], row stride ldo; must not overlap q
  size_t ldo;
  size_t n_heads;  // a multiple of n_kv_heads; head h uses KV head h / (n_heads / n_kv_heads)
  size_t n_kv_heads;
  size_t head_dim;  // a multiple of 8
  float scale;      // of q k^T, usually 1 / sqrt(head_dim)
  float softcap;    // scores become softcap * tanh(score / softcap); 0 = off
  std::span<const AttentionSeq> seqs;
  /// Null: every block is kAbsolute and the rows of q come rotated. Not null: blocks may have any encoding
  /// (mixed, too) and the rows of q come **unrotated**: attention rotates them as each block needs.
  const RopeTable* rope;
  /// Null: the kernels of the active instruction set. Tests name others; results do not differ.
  const AttentionKernels* kernels = nullptr;
  AttentionCompute compute = AttentionCompute::kF32;
};

/// Bytes of scratch, 64-byte aligned, for attention() with these arguments on `threads` (at most 1008)
/// threads.
size_t attention_scratch_bytes(const AttentionArgs& args, size_t threads);

struct AttentionHeads {
  size_t n_heads, n_kv_heads, head_dim;
};
/// What is enough for every call of this geometry with at most `tokens` tokens in a sequence and `keys` keys
/// in a stream: for planning memory ahead.
size_t attention_scratch_bytes(const AttentionHeads& heads, size_t tokens, size_t keys, size_t threads);
/// Bytes at the start of the scratch that hold counters. They must be zero before the first call that uses
/// this scratch (zero them when it is allocated); every call leaves them zero.
size_t attention_counter_bytes();

/// All threads of a region call it with the same arguments and scratch; no barrier inside. `out` is complete
/// when all have returned, so the caller puts a barrier after it (and one before, after the last kv_write).
void attention(const AttentionArgs& args, std::byte* scratch, Worker& worker);
/// The same as thread `index` of `count` threads.
void attention(const AttentionArgs& args, std::byte* scratch, size_t index, size_t count);

}  // namespace isthmus
