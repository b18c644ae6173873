// Several requests at once: a scheduler of forward steps over the sequences of one model.
//
// Requests join and leave at any step. A step() takes one generation token of every running sequence and, up
// to a budget, prompt tokens of those that are still read; the weights are read once for all of them. What a
// request gets does not depend on its company: in the integer class its tokens have the same bits as those of
// generate() alone, whatever else runs, however its prompt was cut, and even when it lost its KV on the way.
// Prompt and generation tokens of different arithmetic classes (Precision::kFast) go in two passes of a step.
//
// What was read before is not read again: texts and their KV are kept in a prefix tree while nobody needs the
// blocks, and a request begins behind the longest beginning that is known. A request whose text begins like
// one that is being read waits for that one. KV is found again by token and arithmetic class, so a hit gives
// the bits of a cold run.
//
// KV blocks are shared by all. A request waits until its prompt fits. When blocks run out later, sequences of
// the worst rank (schedule.h) give up theirs and read their text again when there is room; a request that
// fits the pool alone is always finished. A better level takes the place of a worse one at the next step.
//
// Threads: submit(), cancel() and wake() from any; everything else, and every callback of a request, belongs
// to the one thread that drives step(). Callbacks may submit and cancel, but not step. Errors: a bad request
// is refused by submit(), or ends alone, with a Status, through its on_done; the others go on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/answer.h"
#include "engine/schedule.h"
#include "kv/prefix_tree.h"

namespace isthmus {

using RequestId = uint64_t;

struct BatchRequest {
  GenerateRequest generate;
  Priority priority = Priority::kInteractive;
  /// Called once, last of all: the result, or kCancelled and kDeadlineExceeded when no token was sampled yet,
  /// or the error that ended this request. Its KV is free by then. Required.
  std::function<void(RequestId, Result<GenerateResult>)> on_done;
  /// Requests of different salts share no KV: how apps are kept apart.
  std::string cache_salt = {};
};

struct BatcherOptions {
  size_t max_running = 0;      // sequences that share a step; 0 = the model's step_outputs, which is the most
  size_t max_requests = 1024;  // running and waiting
  size_t step_tokens = 0;      // tokens of a step; 0 = the model's step_tokens, which is the most
  /// Prompt tokens of a step in which others generate: what they may cost the others in time between tokens.
  size_t chunk_tokens = 64;
  std::chrono::nanoseconds patience = std::chrono::seconds(20);  // before a request rises a level; 0 = never
  bool prefix_cache = true;                                      // keep texts that were read
  std::function<Answer::Time()> clock = {};                      // null: the monotonic clock
};

/// What one step did.
struct BatchStep {
  size_t prompt_tokens = 0;      // read for the first time
  size_t recomputed_tokens = 0;  // read again after a preemption
  size_t reused_tokens = 0;      // found in the prefix tree in the place of reading them
  size_t generated_tokens = 0;   // sampled
  size_t running = 0;            // sequences at the end of the step
  size_t waiting = 0;
  size_t preempted = 0;  // sequences that gave up their KV
  size_t finished = 0;   // requests whose on_done was called
  double forward_seconds = 0;
  double sample_seconds = 0;
};

class Batcher {
 public:
  /// kInvalidArgument for more running sequences than the model's step_outputs, or a step too small for them;
  /// kResourceExhausted when the ledger refuses the buffers.
  static Result<std::unique_ptr<Batcher>> create(std::shared_ptr<LanguageModel> model,
                                                 BatcherOptions options = {});
  /// Ends what is left with kCancelled.
  ~Batcher();

  /// Takes a request in. The errors of generate() for a bad one; kUnsupported for one that wants speculation;
  /// kResourceExhausted when max_requests are
  /// there or the prompt exceeds the context or the pool.
  Result<RequestId> submit(BatchRequest request);
  /// Ends a request at the next step, as its StopPolicy would; one that is done or unknown is left alone.
  void cancel(RequestId id);

  /// Runs one step; without work it does nothing.
  BatchStep step();
  /// True when every request is done.
  bool idle() const;
  /// Sleeps until there is a request or wake() is called.
  void wait();
  void wake();

  /// The most tokens that one sequence can have here: the context, or the pool if that is less.
  size_t capacity() const { return capacity_; }
  const LanguageModel& model() const { return *model_; }
  /// What the prefix tree holds and found; zeros without one. For the driving thread.
  PrefixTreeFigures prefix_figures() const;
  /// Forgets all texts that no sequence uses. For the driving thread.
  void forget_prefixes();

 private:
  struct Member;

  Batcher(std::shared_ptr<LanguageModel> model, BatcherOptions options);
  Status prepare();
  Answer::Time now() const { return options_.clock ? options_.clock() : std::chrono::steady_clock::now(); }

  void take_inbox();
  void end_stopped();
  void rank_members();

  void admit();
  bool find_blocks(const Member& head);
  bool find_place(const Member& head);
  size_t blocks_with_next(const Member& member) const;
  size_t promised_blocks() const;
  void preempt(Member& member);
  size_t missing_blocks(const Member& member) const;
  size_t spare_blocks() const;

  Status prepare_prefixes();
  std::vector<PrefixToken> prefix_key(const Member& member, size_t tokens) const;
  bool waits_for_reader(const Member& member) const;
  void reuse_prefix(Member& member);
  void remember_prefix(Member& member, size_t tokens);

  void plan_chunks();
  void make_room();
  bool grow(Member& member);
  Member* worst_holder();

  void run_pass(Compute compute);
  void commit_pass(const Status& status);
  void sample_rows();
  void take_token(Member& member, size_t row);
  bool shift_if_full(Member& member);
  void finish(Member& member, Result<GenerateResult> result);
  void remove_done();

  std::shared_ptr<LanguageModel> model_;
  BatcherOptions options_;
  size_t max_running_ = 0;
  size_t step_tokens_ = 0;
  size_t streams_ = 0;  // KV streams of a sequence
  size_t capacity_ = 0;
  std::shared_ptr<BlockPool> pool_;
  Charge prefix_charge_;
  std::optional<PrefixTree> prefixes_;
  std::unique_ptr<Workspace> workspace_;
  Charge logits_charge_;
  std::vector<float> logits_;                     // [max_running][vocab]
  std::vector<std::unique_ptr<Member>> members_;  // best rank first
  BatchStep report_;

  // Of the step that is being made; kept so that their memory is reused.
  std::vector<Member*> readers_;
  std::vector<size_t> wanted_, shares_;
  std::vector<Member*> pass_;
  std::vector<Member*> rows_;  // whose logits stand in row i
  std::vector<ForwardSequence> sequences_;
  std::vector<uint32_t> outputs_;
  std::vector<std::optional<Result<Sampled>>> sampled_;

  mutable std::mutex mutex_;  // of everything below
  std::condition_variable work_;
  std::vector<std::unique_ptr<Member>> inbox_;
  std::vector<RequestId> cancels_;
  RequestId next_id_ = 1;
  size_t unfinished_ = 0;
  bool woken_ = false;
  bool closed_ = false;
};

}  // namespace isthmus
