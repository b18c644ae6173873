// The prefix cache: KV of texts that were read before, found again by their tokens (RadixAttention, Zheng et
// al. 2023, arXiv 2312.07104).
//
// A tree whose nodes are one block of tokens each: 32, or fewer in a leaf. The node holds the blocks of all
// streams (layer, KV head) for its tokens, shared with the sequences that use them; the way from the root
// spells the text. A text is matched token by token: also the first tokens of a node's block are of use,
// since a sequence copies a shared block before it writes to it. Texts of different salts never meet.
//
// Blocks belong to the sequences' pool. Whoever runs out of them asks evict(): nodes that no sequence uses
// go, of those the ones without children first that were used longest ago. Deterministic; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/block_pool.h"
#include "kv/sequence.h"

namespace isthmus {

/// A token of a text: its id, and whatever else tells its KV from another's (a higher bit for the arithmetic
/// class).
using PrefixToken = int32_t;

struct PrefixTreeFigures {
  size_t nodes = 0;
  size_t tokens = 0;   // that the nodes spell, each counted once
  size_t lookups = 0;  // take()
  size_t hits = 0;     // lookups that found a token or more
  size_t hit_tokens = 0;
  size_t evicted_tokens = 0;
};

class PrefixTree : public BlockReclaimer {
 public:
  /// For sequences of `layers` x `kv_heads` streams over `pool`.
  PrefixTree(std::shared_ptr<BlockPool> pool, size_t layers, size_t kv_heads);
  ~PrefixTree() override;
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  /// Bytes beside the blocks for each node, at most.
  static size_t node_bytes(size_t streams);

  /// How many tokens of `text` are there. Leaves no trace.
  size_t match(std::string_view salt, std::span<const PrefixToken> text) const;
  /// A sequence that holds the longest known beginning of `text`; empty when there is none.
  KvSequence take(std::string_view salt, std::span<const PrefixToken> text);
  /// Remembers `text`, the first committed tokens of `kv`, whose blocks are shared from then on; what is
  /// known already keeps its blocks. kInvalidArgument when the sequence holds fewer tokens, or is of another
  /// pool or geometry; kFailedPrecondition when it was composed or predicted, or gave up keys: an exact tree
  /// takes no such KV.
  Status insert(std::string_view salt, std::span<const PrefixToken> text, KvSequence& kv);

  /// Blocks that evict() could free now.
  size_t evictable() const;
  /// Frees `blocks` blocks or more, or all that it can; returns how many.
  size_t evict(size_t blocks);
  size_t reclaim(size_t blocks) override { return evict(blocks); }
  /// Forgets every text.
  void clear();

  PrefixTreeFigures figures() const;

 private:
  struct Node;
  /// Where a text leaves the tree.
  struct Match {
    std::vector<Node*> path;  // all of whose tokens match, but for the last one's
    size_t tokens = 0;        // of the text
    size_t last = 0;          // of them in the last node
  };

  Match find(std::string_view salt, std::span<const PrefixToken> text) const;
  Node* add(Node& parent, std::span<const PrefixToken> tokens, const KvSequence& kv, size_t index);
  bool in_use(const Node& node) const;
  void touch(const Match& match);
  void remove(Node& leaf);

  std::shared_ptr<BlockPool> pool_;
  size_t layers_;
  size_t kv_heads_;
  mutable std::mutex mutex_;                                         // of everything below
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;  // by salt
  uint64_t clock_ = 0;
  PrefixTreeFigures figures_;
};

}  // namespace isthmus
