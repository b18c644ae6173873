// One sequence being read and continued: its tokens, their KV, and the logits after the newest one.
//
// The token stream is append-only as seen by the KV: append() adds tokens, truncate() goes back, fork()
// starts a second session from the same point without copying, a token tree can be tried and one of its paths
// accepted, a chain of guessed tokens tried and its first ones kept. Cancel and deadline are checked before
// each step; a step that fails leaves the session as it was before that step. Not thread-safe; different
// sessions of one model may be used from different threads.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "engine/kv_eviction.h"
#include "engine/language_model.h"
#include "engine/text_parts.h"
#include "kv/kv_record.h"

namespace isthmus {

/// What the KV of a session is at a moment.
struct KvFigures {
  uint64_t bytes = 0;  // of the blocks held
  Exactness exactness = Exactness::kExact;
  KvPolicy policy = KvPolicy::kFull;
  bool pruned = false;       // keys are gone: what follows is approximate
  uint64_t keys_before = 0;  // of the streams that may lose keys, over all times that keys were chosen
  uint64_t keys_after = 0;
  std::string codec = "16";  // of full blocks, as kv_bits_name() writes it
};

/// What a token is for; decides the arithmetic class (design: never the batch it rides in).
enum class Purpose : uint8_t { kPrompt, kGeneration };

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<LanguageModel> model);

  const LanguageModel& model() const { return *model_; }
  /// Begins to prepare the two-stage output head, where the model was opened with one.
  void start_head() { model_->start_head(); }
  Ledger& ledger() { return model_->ledger(); }

  /// Gives up keys as the model's options say (ModelOptions::eviction); nothing to do with KvPolicy::kFull.
  /// To be called when a prompt was read: logits() stay, what is read afterwards sees what is left.
  Status evict(const StopPolicy& stop = {});
  /// Replaces the policy, for what is read from now on; queries asked before are not known to it.
  Status set_eviction(const EvictionOptions& options);
  /// Null with KvPolicy::kFull.
  const KvEviction* eviction() const { return eviction_.get(); }
  /// Whether keys were given up: then truncate() cannot go back before that point.
  bool pruned() const { return kv_.pruned() || slid() > 0; }
  /// Bytes of the KV blocks held, shared ones included.
  uint64_t kv_bytes() const { return kv_.bytes(); }
  KvFigures kv_figures() const;
  /// The text read: tokens whose KV is held, or was (pruned()).
  std::span<const TokenId> tokens() const { return tokens_; }
  /// Tokens that can still be read; without end with KvPolicy::kStreaming.
  size_t room() const {
    if (endless()) return SIZE_MAX / 2;
    return std::min(model_->context() - tokens_.size(), most_positions() - kv_.position(kv_.length()));
  }
  /// Tokens of the longest chain now: coded KV ends it at the next coding, so that what is read in a chain
  /// has the bits of one token after another.
  size_t chain_room() const { return std::min(room(), kv_.until_coding()); }
  /// Tokens of the longest text.
  size_t capacity() const { return endless() ? SIZE_MAX / 2 : model_->context(); }
  /// Their KV, for who keeps it elsewhere.
  const KvSequence& kv() const { return kv_; }

  /// Reads `tokens` in steps. kResourceExhausted when they do not fit the context: nothing is read then.
  /// `best` > 0: only the largest `best` logits after the newest token are wanted (ForwardStep::best).
  Status append(std::span<const TokenId> tokens, Purpose purpose, const StopPolicy& stop = {},
                size_t best = 0);
  /// Logits [vocab] after the newest token; empty when the newest step did not end at it: nothing read yet,
  /// truncated, or part of a tree accepted.
  std::span<const float> logits() const { return row(row_, logits_valid_); }
  /// False when logits() may hold -infinity in the place of all but the best ones.
  bool logits_complete() const { return best_ == 0; }
  /// How the best logits were found so far.
  const HeadFigures& head_figures() const { return workspace_->head_figures(); }

  /// Tries a token tree after the present text (parents as in ForwardSequence; empty: a chain): logits
  /// [tokens][vocab] go to `logits`. Nothing is kept until accept(); a tree that fails changes nothing.
  Status try_tree(std::span<const TokenId> tokens, std::span<const int32_t> parents,
                  std::vector<float>& logits);
  /// Keeps the path (ascending indices, root to leaf) of the tree tried last; an empty path keeps nothing,
  /// and logits() stay. kInvalidArgument when it is no path of that tree, which may then be tried with
  /// another path; kFailedPrecondition when no tree was tried since the text last changed.
  Status accept(std::span<const uint32_t> path);

  /// Takes the memory for chains of `tokens` tokens, which may be as many as a step gives logits for
  /// (ModelOptions). Once is enough; kResourceExhausted when the memory limit forbids it.
  Status reserve_chain(size_t tokens);
  /// Reads a chain of tokens after the present text in one step of generation arithmetic, each with its
  /// logits, into the memory of reserve_chain(). They count as text once keep_chain() says how many; logits()
  /// are gone until then. A failed chain leaves the text as it was, without logits.
  Status try_chain(std::span<const TokenId> tokens);
  /// Logits [vocab] after token i of the chain tried last; empty when there is none.
  std::span<const float> chain_logits(size_t i) const { return row(i, i < chain_.size()); }
  /// Makes the first `n` tokens of that chain text, with the logits of the last of them, and forgets the
  /// rest. kFailedPrecondition when no chain was tried since the text last changed.
  Status keep_chain(size_t n);

  /// Forgets the tokens from `length` on. kFailedPrecondition when keys before that were given up (0 is
  /// always possible).
  Status truncate(size_t length);
  /// Makes the held tokens the longest common prefix with `wanted`, short of its last token (whose logits
  /// will be needed); returns how many are kept. Which part was reused is thereby known to the caller.
  size_t keep_common_prefix(std::span<const TokenId> wanted);
  /// Takes blocks [from, from + count) of a record in as the next tokens, in the place of reading them. The
  /// record must follow the whole blocks held, of which what is held beyond them is forgotten first. logits()
  /// are gone. On an error nothing but that has changed. The errors of KvRecord::append_to().
  Status append_stored(const KvRecord& record, size_t from, size_t count);
  /// Makes the session hold the text that the parts make, in ascending positions: copies the KV of those that
  /// bring it, repairs it as `repair` says, and computes the others. logits() are those after the last part
  /// when that is computed here. What is held before is forgotten, and all is on an error. kInvalidArgument
  /// (parts overlap), kResourceExhausted (too many tokens or positions), kUnsupported (keys not rotated by
  /// absolute positions), kFailedPrecondition (KV in another form), kCancelled and kDeadlineExceeded. `code`:
  /// full blocks are then coded as the model's options say; without it they stay as written until the text is
  /// forgotten, for who copies them.
  Result<ComposeFigures> compose(std::span<const TextPart> parts, const RepairOptions& repair = {},
                                 const StopPolicy& stop = {}, bool code = true);
  /// Computes `tokens` (ascending) of the text anew in place, in the arithmetic of prompts; each sees all
  /// before it. logits() stay. The errors of KvSequence::reopen(), kCancelled, kDeadlineExceeded.
  Status recompute(std::span<const uint32_t> tokens, const StopPolicy& stop = {});

  /// Computes the newest token anew, for its logits, which are then there. kFailedPrecondition without text.
  Status recompute_last(const StopPolicy& stop = {});
  /// Takes in a text whose KV is at hand: all of its `tokens`, nothing pending, of this model's pool.
  /// logits() are gone.
  void adopt(KvSequence kv, std::vector<TokenId> tokens);
  /// Hands the KV out and leaves the session empty.
  KvSequence take_kv();
  /// Shows `record`, which outlives its stay here, the queries of what is read from now on; null: nobody. A
  /// policy that gives up keys records its own.
  void watch_queries(QueryRecord* record) { watched_ = record; }

  /// A second session at the same point. Needs KV blocks only as the two grow apart.
  Result<std::unique_ptr<Session>> fork() const;

 private:
  explicit Session(std::shared_ptr<LanguageModel> model) : model_(std::move(model)) {}
  Status step(std::span<const TokenId> tokens, Purpose purpose, bool last, size_t best);
  std::span<const float> row(size_t index, bool there) const {
    const size_t vocab = model_->config().vocab;
    return {logits_.data() + (there ? index * vocab : 0), there ? vocab : 0};
  }
  void forget_tried();
  Status compute_in_place(std::span<const uint32_t> tokens, size_t layers, bool newest,
                          const StopPolicy& stop);
  Status put_together(std::span<const TextPart> parts, const RepairOptions& repair, const StopPolicy& stop,
                      ComposeFigures& out);
  Status turn_part(uint32_t at, const TextPart& part);
  Status choose_deviating(std::span<const uint32_t> copied, size_t wanted, std::vector<uint32_t>& anew,
                          const StopPolicy& stop);
  /// Positions that a text may reach.
  size_t most_positions() const { return std::max(model_->context(), model_->config().context); }
  bool endless() const { return eviction_ != nullptr && eviction_->endless(); }
  /// Tokens that lie no more between the sinks and the newest ones.
  size_t slid() const { return tokens_.size() - kv_.length(); }
  void begin_coding();
  Status after_step() { return eviction_ == nullptr ? ok_status() : eviction_->after_step(kv_); }

  std::shared_ptr<LanguageModel> model_;
  std::unique_ptr<Workspace> workspace_;
  KvSequence kv_;
  std::unique_ptr<KvEviction> eviction_;
  QueryRecord* watched_ = nullptr;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> tree_;
  std::vector<int32_t> tree_parents_;
  std::vector<TokenId> chain_;
  std::vector<uint32_t> chain_outputs_;  // 0, 1, 2 …
  Charge chain_charge_;
  std::vector<float> logits_;  // [1, or tokens of a chain][vocab]
  size_t row_ = 0;             // of logits_: after the newest token
  bool logits_valid_ = false;
  size_t best_ = 0;  // of the newest logits: how many were wanted, 0 = all
};

}  // namespace isthmus
