#include "kv/prefix_tree.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace isthmus {

struct PrefixTree::Node {
  Node* parent = nullptr;
  std::vector<PrefixToken> tokens;  // 1 to 32; none in a root
  std::vector<BlockId> blocks;      // one per stream
  std::vector<std::unique_ptr<Node>> children;
  uint64_t used = 0;

  /// Tokens of `text` that stand at the beginning of this node.
  size_t common(std::span<const PrefixToken> text) const {
    const size_t most = std::min(text.size(), tokens.size());
    size_t n = 0;
    while (n < most && tokens[n] == text[n]) ++n;
    return n;
  }
  /// The child that shares most tokens with the beginning of `text`, and how many.
  std::pair<Node*, size_t> best_child(std::span<const PrefixToken> text) const {
    std::pair<Node*, size_t> best{nullptr, 0};
    for (const auto& child : children) {
      const size_t n = child->common(text);
      if (n > best.second) best = {child.get(), n};
    }
    return best;
  }
};

PrefixTree::PrefixTree(std::shared_ptr<BlockPool> pool, size_t layers, size_t kv_heads)
    : pool_(std::move(pool)), layers_(layers), kv_heads_(kv_heads) {
  pool_->add_reclaimer(*this);
}

PrefixTree::~PrefixTree() {
  pool_->remove_reclaimer(*this);
  clear();
}

size_t PrefixTree::node_bytes(size_t streams) {
  constexpr size_t kOverhead = 8 * sizeof(void*);  // of the allocations
  return sizeof(Node) + kBlockKeys * sizeof(PrefixToken) + streams * sizeof(BlockId) + 2 * sizeof(void*) +
         kOverhead;
}

PrefixTree::Match PrefixTree::find(std::string_view salt, std::span<const PrefixToken> text) const {
  Match match;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return match;
  for (Node* at = root->second.get();;) {
    const auto [child, n] = at->best_child(text.subspan(match.tokens));
    if (child == nullptr) return match;
    match.path.push_back(child);
    match.tokens += n;
    match.last = n;
    if (n < kBlockKeys) return match;
    at = child;
  }
}

void PrefixTree::touch(const Match& match) {
  ++clock_;
  for (Node* node : match.path) node->used = clock_;
}

PrefixTreeFigures PrefixTree::figures() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return figures_;
}

size_t PrefixTree::match(std::string_view salt, std::span<const PrefixToken> text) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return find(salt, text).tokens;
}

KvSequence PrefixTree::take(std::string_view salt, std::span<const PrefixToken> text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Match match = find(salt, text);
  touch(match);
  ++figures_.lookups;
  figures_.hits += match.tokens > 0 ? 1 : 0;
  figures_.hit_tokens += match.tokens;
  KvSequence out(pool_, layers_, kv_heads_);
  size_t left = match.tokens;
  for (const Node* node : match.path) {
    const size_t n = std::min(left, kBlockKeys);
    out.append_shared(node->blocks, n);
    left -= n;
  }
  return out;
}

Status PrefixTree::insert(std::string_view salt, std::span<const PrefixToken> text, KvSequence& kv) {
  if (kv.pool() != pool_ || kv.layers() != layers_ || kv.kv_heads() != kv_heads_) {
    return invalid_argument("the sequence is not of the pool and streams of this prefix cache");
  }
  if (kv.length() < text.size()) {
    return invalid_argument("a text of " + std::to_string(text.size()) +
                            " tokens, but the sequence holds only " + std::to_string(kv.length()));
  }
  if (kv.exactness() > Exactness::kQuantised) {
    return failed_precondition("KV that was composed or predicted may not enter the exact prefix cache");
  }
  if (kv.pruned()) return failed_precondition("KV that gave up keys may not enter the exact prefix cache");
  if (text.empty()) return ok_status();
  const std::lock_guard<std::mutex> lock(mutex_);
  auto root = roots_.find(salt);
  if (root == roots_.end()) root = roots_.emplace(salt, std::make_unique<Node>()).first;
  ++clock_;
  Node* at = root->second.get();
  for (size_t done = 0; done < text.size();) {
    const auto rest = text.subspan(done, std::min(kBlockKeys, text.size() - done));
    const auto [child, n] = at->best_child(rest);
    // A shorter leaf of the same tokens gives way to a longer one; a shorter text adds nothing.
    Node* next = n == rest.size() ? child : nullptr;
    if (next == nullptr) {
      if (child != nullptr && n == child->tokens.size()) remove(*child);
      next = add(*at, rest, kv, done / kBlockKeys);
    } else if (rest.size() == kBlockKeys) {
      kv.replace_block(done / kBlockKeys, next->blocks);
    }
    next->used = clock_;
    done += rest.size();
    at = next;
  }
  return ok_status();
}

PrefixTree::Node* PrefixTree::add(Node& parent, std::span<const PrefixToken> tokens, const KvSequence& kv,
                                  size_t index) {
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->tokens.assign(tokens.begin(), tokens.end());
  node->blocks.reserve(layers_ * kv_heads_);
  parent.children.reserve(parent.children.size() + 1);
  kv.share_block(index, node->blocks);  // from here on nothing can fail
  ++figures_.nodes;
  figures_.tokens += tokens.size();
  parent.children.push_back(std::move(node));
  return parent.children.back().get();
}

/// A sequence that uses a node shares all of its blocks, so one tells for all.
bool PrefixTree::in_use(const Node& node) const { return pool_->shared(node.blocks.front()); }

size_t PrefixTree::evictable() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t blocks = 0;
  // A node in use keeps its ancestors: what uses it uses them, too.
  const auto count = [&](const auto& self, const Node& node) -> void {
    for (const auto& child : node.children) {
      if (!in_use(*child)) blocks += child->blocks.size();
      self(self, *child);
    }
  };
  for (const auto& [salt, root] : roots_) count(count, *root);
  return blocks;
}

size_t PrefixTree::evict(size_t blocks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto later = [](const Node* a, const Node* b) { return a->used > b->used; };
  std::priority_queue<Node*, std::vector<Node*>, decltype(later)> leaves(later);
  const auto offer = [&](Node& node) {
    if (node.parent != nullptr && node.children.empty() && !in_use(node)) leaves.push(&node);
  };
  const auto collect = [&](const auto& self, Node& node) -> void {
    offer(node);
    for (const auto& child : node.children) self(self, *child);
  };
  for (const auto& [salt, root] : roots_) collect(collect, *root);
  size_t freed = 0;
  while (freed < blocks && !leaves.empty()) {
    Node* leaf = leaves.top();
    leaves.pop();
    Node& parent = *leaf->parent;
    freed += leaf->blocks.size();
    figures_.evicted_tokens += leaf->tokens.size();
    remove(*leaf);
    offer(parent);
  }
  std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
  return freed;
}

void PrefixTree::remove(Node& leaf) {
  for (const BlockId id : leaf.blocks) pool_->release(id);
  --figures_.nodes;
  figures_.tokens -= leaf.tokens.size();
  std::erase_if(leaf.parent->children, [&](const auto& child) { return child.get() == &leaf; });
}

void PrefixTree::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto drop = [&](const auto& self, Node& node) -> void {
    while (!node.children.empty()) {
      self(self, *node.children.back());
      remove(*node.children.back());
    }
  };
  for (const auto& [salt, root] : roots_) drop(drop, *root);
  roots_.clear();
}

}  // namespace isthmus
