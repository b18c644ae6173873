// The life of a request: in by submit(), through the steps, out by finish().
#include "engine/batcher.h"

#include <algorithm>
#include <string>

#include "engine/batch_member.h"

namespace isthmus {

Batcher::Batcher(std::shared_ptr<LanguageModel> model, BatcherOptions options)
    : model_(std::move(model)), options_(std::move(options)) {}

Result<std::unique_ptr<Batcher>> Batcher::create(std::shared_ptr<LanguageModel> model,
                                                 BatcherOptions options) {
  std::unique_ptr<Batcher> out(new Batcher(std::move(model), std::move(options)));
  ISTHMUS_RETURN_IF_ERROR(out->prepare());
  return out;
}

Status Batcher::prepare() {
  if (!model_->coded_formats().empty()) return unsupported("batches over coded KV");
  if (model_->options().eviction.on())
    return unsupported("batches keep all keys; the model was loaded to evict some");
  const RunShape shape = model_->run_shape();
  const ModelConfig& config = model_->config();
  max_running_ =
      options_.max_running == 0 ? std::min(shape.max_outputs, shape.max_tokens) : options_.max_running;
  step_tokens_ = options_.step_tokens == 0 ? shape.max_tokens : options_.step_tokens;
  if (max_running_ > shape.max_outputs) {
    return invalid_argument(std::to_string(max_running_) +
                            " sequences at once need as many rows of logits; " +
                            "the model was loaded with step_outputs " + std::to_string(shape.max_outputs));
  }
  if (step_tokens_ > shape.max_tokens || step_tokens_ < max_running_) {
    return invalid_argument("a step of " + std::to_string(step_tokens_) + " tokens for " +
                            std::to_string(max_running_) + " sequences; the model's steps hold " +
                            std::to_string(shape.max_tokens));
  }
  if (options_.chunk_tokens == 0) return invalid_argument("chunk_tokens is 0: no prompt would get on");
  pool_ = model_->make_sequence().pool();
  streams_ = config.layers * config.n_kv_heads;
  capacity_ = std::min(model_->context(), pool_->config().blocks / streams_ * kBlockKeys);
  ISTHMUS_ASSIGN_OR_RETURN(workspace_, model_->make_workspace());
  const size_t floats = max_running_ * config.vocab;
  ISTHMUS_ASSIGN_OR_RETURN(logits_charge_,
                           model_->ledger().charge(MemoryKind::kWork, floats * sizeof(float)));
  logits_.resize(floats);
  return prepare_prefixes();
}

Batcher::~Batcher() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  take_inbox();
  for (auto& member : members_) member->stop_asked = true;
  end_stopped();
}

Result<RequestId> Batcher::submit(BatchRequest request) {
  const size_t vocab = model_->config().vocab;
  if (!request.on_done) return invalid_argument("a request without on_done");
  ISTHMUS_RETURN_IF_ERROR(Answer::check(request.generate, vocab, capacity_));
  if (request.generate.speculate.max_draft > 0) {
    return unsupported("speculation in a batch, which reads the weights for many tokens anyway");
  }
  for (const TokenId token : request.generate.prompt) {
    if (token < 0 || static_cast<size_t>(token) >= vocab) {
      return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary of " +
                              std::to_string(vocab));
    }
  }
  auto member = std::make_unique<Member>(std::move(request), *model_, now());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return unavailable("the batcher is being closed");
  if (unfinished_ >= options_.max_requests) {
    return resource_exhausted(std::to_string(unfinished_) + " requests are running or waiting: no more fit");
  }
  const RequestId id = next_id_++;
  member->id = id;
  member->rank.arrival = id;
  inbox_.push_back(std::move(member));
  ++unfinished_;
  work_.notify_all();
  return id;
}

void Batcher::cancel(RequestId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cancels_.push_back(id);
}

bool Batcher::idle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unfinished_ == 0;
}

void Batcher::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  work_.wait(lock, [&] { return woken_ || unfinished_ > 0; });
  woken_ = false;
}

void Batcher::wake() {
  const std::lock_guard<std::mutex> lock(mutex_);
  woken_ = true;
  work_.notify_all();
}

BatchStep Batcher::step() {
  report_ = {};
  take_inbox();
  end_stopped();
  rank_members();
  admit();
  plan_chunks();
  make_room();
  const Compute generation = model_->generation_compute();
  const Compute prompt = model_->prompt_compute();
  run_pass(generation);
  if (prompt != generation) run_pass(prompt);
  remove_done();
  for (const auto& member : members_) {
    ++(member->state == Member::State::kRunning ? report_.running : report_.waiting);
  }
  return report_;
}

void Batcher::take_inbox() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& member : inbox_) {
    member->kv = model_->make_sequence();
    members_.push_back(std::move(member));
  }
  inbox_.clear();
  for (const RequestId id : cancels_) {
    for (auto& member : members_) {
      if (member->id == id) member->stop_asked = true;
    }
  }
  cancels_.clear();
}

void Batcher::end_stopped() {
  const Answer::Time time = now();
  for (auto& member : members_) {
    Member& m = *member;
    const StopPolicy& stop = m.request.generate.stop;
    const bool stopped = m.stop_asked || stop.token.cancelled();
    if (!stopped && (stop.deadline == Answer::Time::max() || time < stop.deadline)) continue;
    if (m.answer.generated() == 0) {
      finish(m, stopped ? cancelled("stopped by the caller") : deadline_exceeded("the deadline has passed"));
    } else {
      m.answer.end(stopped ? FinishReason::kCancelled : FinishReason::kDeadline);
      finish(m, m.answer.finish());
    }
  }
  remove_done();
}

void Batcher::rank_members() {
  const Answer::Time time = now();
  for (auto& m : members_) {
    if (m->state == Member::State::kRunning) continue;
    const unsigned level = aged_level(m->request.priority, time - m->accepted, options_.patience);
    m->rank.level = std::min(m->rank.level, level);
  }
  std::sort(members_.begin(), members_.end(), [](const auto& a, const auto& b) { return a->rank < b->rank; });
}

void Batcher::finish(Member& member, Result<GenerateResult> result) {
  member.state = Member::State::kDone;
  member.chunk = 0;
  remember_prefix(member, member.kv.length());
  member.kv.clear();
  ++report_.finished;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --unfinished_;
  }
  member.request.on_done(member.id, std::move(result));
}

void Batcher::remove_done() {
  std::erase_if(members_, [](const auto& member) { return member->state == Member::State::kDone; });
}

}  // namespace isthmus
