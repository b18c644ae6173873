// What a batch remembers of the texts that it read: the prefix tree between the requests.
#include <algorithm>

#include "engine/batch_member.h"

namespace isthmus {

Status Batcher::prepare_prefixes() {
  if (!options_.prefix_cache) return ok_status();
  const ModelConfig& config = model_->config();
  const size_t nodes = pool_->config().blocks / streams_;
  ISTHMUS_ASSIGN_OR_RETURN(
      prefix_charge_, model_->ledger().charge(MemoryKind::kKv, nodes * PrefixTree::node_bytes(streams_)));
  prefixes_.emplace(pool_, config.layers, config.n_kv_heads);
  return ok_status();
}

PrefixTreeFigures Batcher::prefix_figures() const {
  return prefixes_ ? prefixes_->figures() : PrefixTreeFigures{};
}

void Batcher::forget_prefixes() {
  if (prefixes_) (void)prefixes_->evict(SIZE_MAX);
}

/// The first tokens of a text as the tree knows them: with the arithmetic that reads them, where prompts and
/// answers have one of their own.
std::vector<PrefixToken> Batcher::prefix_key(const Member& member, size_t tokens) const {
  constexpr PrefixToken kOtherClass = PrefixToken{1} << 30;
  std::vector<PrefixToken> key(member.text.begin(), member.text.begin() + static_cast<ptrdiff_t>(tokens));
  const Compute prompt = model_->prompt_compute();
  for (size_t i = 0; i < tokens; ++i) {
    if (member.compute_at(i, *model_) != prompt) key[i] |= kOtherClass;
  }
  return key;
}

/// Whether a sequence that goes first is about to read a beginning that this one would read, too. A block or
/// more makes it worth while; once it is read, it is in the tree.
bool Batcher::waits_for_reader(const Member& member) const {
  if (!prefixes_ || member.kv.length() > 0) return false;
  const std::vector<PrefixToken> mine = prefix_key(member, member.text.size() - 1);
  size_t most = 0;
  for (const auto& other : members_) {
    const bool reads = other->state == Member::State::kRunning && !other->prompt_known;
    if (!reads || other.get() == &member || other->rank.level > member.rank.level) continue;
    if (other->request.cache_salt != member.request.cache_salt) continue;
    const std::vector<PrefixToken> theirs = prefix_key(*other, std::min(other->text.size(), mine.size()));
    const auto differ = std::mismatch(theirs.begin(), theirs.end(), mine.begin());
    const size_t blocks = static_cast<size_t>(differ.first - theirs.begin()) / kBlockKeys;
    if (other->kv.length() < blocks * kBlockKeys) most = std::max(most, blocks * kBlockKeys);
  }
  return most > 0 && prefixes_->match(member.request.cache_salt, mine) < most;
}

/// Gives a sequence that holds nothing the known beginning of its text, short of the newest token, whose
/// logits will be wanted.
void Batcher::reuse_prefix(Member& member) {
  if (!prefixes_ || member.kv.length() > 0 || member.text.size() < 2) return;
  member.kv = prefixes_->take(member.request.cache_salt, prefix_key(member, member.text.size() - 1));
  report_.reused_tokens += member.kv.length();
  if (member.seen == 0) member.reused = member.kv.length();
}

/// Keeps the first `tokens` tokens that a sequence has read.
void Batcher::remember_prefix(Member& member, size_t tokens) {
  if (!prefixes_) return;
  // Plain KV of this pool: it cannot be refused.
  (void)prefixes_->insert(member.request.cache_salt, prefix_key(member, tokens), member.kv);
}

}  // namespace isthmus
