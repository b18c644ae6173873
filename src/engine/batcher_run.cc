// What a step computes: chunks, passes, rows of logits, tokens.
#include <algorithm>
#include <chrono>

#include "engine/batch_member.h"

namespace isthmus {
namespace {

using StepClock = std::chrono::steady_clock;

double forward_seconds_since(StepClock::time_point start) {
  return std::chrono::duration<double>(StepClock::now() - start).count();
}

}  // namespace

/// One token for each sequence that generates; the rest of the budget for those that read.
void Batcher::plan_chunks() {
  size_t generating = 0;
  readers_.clear();
  wanted_.clear();
  for (auto& member : members_) {
    member->chunk = 0;
    if (member->state != Member::State::kRunning) continue;
    if (member->generating()) {
      member->chunk = 1;
      ++generating;
    } else {
      readers_.push_back(member.get());
      wanted_.push_back(member->next_run(*model_));
    }
  }
  size_t budget = step_tokens_ - generating;
  if (generating > 0) budget = std::min(budget, options_.chunk_tokens);
  share_budget(wanted_, budget, shares_);
  for (size_t i = 0; i < readers_.size(); ++i) readers_[i]->chunk = shares_[i];
}

/// One forward pass over the chunks of one arithmetic class, and the tokens that come of it.
void Batcher::run_pass(Compute compute) {
  pass_.clear();
  rows_.clear();
  sequences_.clear();
  outputs_.clear();
  size_t tokens = 0;
  for (auto& member : members_) {
    Member& m = *member;
    if (m.chunk == 0 || m.next_compute(*model_) != compute) continue;
    pass_.push_back(&m);
    sequences_.push_back({&m.kv, std::span(m.text).subspan(m.kv.length(), m.chunk), {}});
    tokens += m.chunk;
    if (m.chunk < m.unread()) continue;
    rows_.push_back(&m);
    outputs_.push_back(static_cast<uint32_t>(tokens - 1));
  }
  if (pass_.empty()) return;
  ForwardStep step;
  step.sequences = sequences_;
  step.compute = compute;
  step.outputs = outputs_;
  step.logits = outputs_.empty() ? nullptr : logits_.data();
  const auto start = StepClock::now();
  const Status status = model_->transformer().forward(step, *workspace_, model_->pool());
  report_.forward_seconds += forward_seconds_since(start);
  commit_pass(status);
  if (status.ok()) sample_rows();
}

void Batcher::commit_pass(const Status& status) {
  const Answer::Time time = now();
  for (Member* m : pass_) {
    if (!status.ok()) {
      finish(*m, status);
      continue;
    }
    const size_t length = m->kv.length() + m->chunk;
    const size_t fresh = length - std::min(length, std::max(m->seen, m->kv.length()));
    report_.recomputed_tokens += m->chunk - fresh;
    // Of the tokens that were sampled only the newest can be new to the model.
    const bool newest = fresh > 0 && m->purposes[length - 1] == Purpose::kGeneration;
    report_.prompt_tokens += fresh - (newest ? 1 : 0);
    m->seen = std::max(m->seen, length);
    m->kv.commit(m->chunk);
    // At once, for requests that begin like this one; the last block, which will be written to, at the end.
    const bool fills_block = length / kBlockKeys > (length - m->chunk) / kBlockKeys;
    if (!m->prompt_known && fills_block) remember_prefix(*m, length / kBlockKeys * kBlockKeys);
    m->chunk = 0;
    if (m->prompt_known || length < m->request.generate.prompt.size()) continue;
    m->prompt_known = true;
    m->answer.prompt_read(m->reused, time);
  }
}

/// Samples all rows, by all threads, and then hands the tokens out in the order of rank.
void Batcher::sample_rows() {
  const auto start = StepClock::now();
  const size_t vocab = model_->config().vocab;
  const Answer::Time time = now();
  sampled_.assign(rows_.size(), std::nullopt);
  const auto sample = [&](size_t row) {
    sampled_[row].emplace(rows_[row]->answer.sample({logits_.data() + row * vocab, vocab}));
  };
  for (Member*& m : rows_) {
    if (m->answer.may_go_on(time)) continue;
    finish(*m, m->answer.finish());
    m = nullptr;
  }
  if (rows_.size() == 1) {
    if (rows_[0] != nullptr) sample(0);
  } else if (!rows_.empty()) {
    model_->pool().run([&](Worker& worker) {
      for (size_t row = worker.index(); row < rows_.size(); row += worker.count()) {
        if (rows_[row] != nullptr) sample(row);
      }
    });
  }
  report_.sample_seconds += forward_seconds_since(start);
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row] != nullptr) take_token(*rows_[row], row);
  }
}

void Batcher::take_token(Member& member, size_t row) {
  const Result<Sampled>& sampled = *sampled_[row];
  if (!sampled.ok()) return finish(member, sampled.status());
  ++report_.generated_tokens;
  if (!member.answer.take(*sampled, now()) || !shift_if_full(member)) {
    return finish(member, member.answer.finish());
  }
  member.text.push_back(sampled->token);
  member.purposes.push_back(Purpose::kGeneration);
}

/// Makes a place for one more token; false when the request ends instead.
bool Batcher::shift_if_full(Member& member) {
  if (member.text.size() < capacity_) return true;
  const GenerateRequest& request = member.request.generate;
  if (request.on_full == ContextPolicy::kStop) return member.answer.end(FinishReason::kContext);
  const ContextShift cut = context_shift(member.text.size(), request.keep_tokens);
  const auto drop = [&](auto& values) {
    values.erase(values.begin() + static_cast<ptrdiff_t>(cut.keep),
                 values.begin() + static_cast<ptrdiff_t>(cut.resume));
  };
  drop(member.text);
  drop(member.purposes);
  std::fill(member.purposes.begin() + static_cast<ptrdiff_t>(cut.keep), member.purposes.end(),
            Purpose::kPrompt);
  (void)member.kv.truncate(cut.keep);  // all of the text is held: it cannot fail
  member.seen = cut.keep;
  member.answer.count_shift();
  return true;
}

}  // namespace isthmus
