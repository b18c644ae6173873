#include "engine/speculation.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "engine/lookup_proposer.h"

namespace isthmus {
namespace {

Status check_options(const Session& session, const SpeculateOptions& options) {
  if (session.eviction() != nullptr) {
    return unsupported("drafts are verified with all keys: not with a policy that gives up keys");
  }
  const size_t most = session.model().options().draft_tokens;
  if (options.max_draft >= 1 && options.max_draft <= most) return ok_status();
  return invalid_argument("drafts of " + std::to_string(options.max_draft) +
                          " tokens; the model was opened for drafts of at most " + std::to_string(most));
}

}  // namespace

Result<std::unique_ptr<SpeculativeReader>> SpeculativeReader::create(Session& session,
                                                                     const SpeculateOptions& options) {
  ISTHMUS_RETURN_IF_ERROR(check_options(session, options));
  const size_t window = LookupProposer::window_for(session.model().context());
  ISTHMUS_ASSIGN_OR_RETURN(Charge charge,
                           session.ledger().charge(MemoryKind::kWork, LookupProposer::bytes(window)));
  auto proposer = std::make_unique<LookupProposer>(window, options.min_match);
  ISTHMUS_ASSIGN_OR_RETURN(auto out, create(session, options, std::move(proposer)));
  out->charge_ = std::move(charge);
  return out;
}

Result<std::unique_ptr<SpeculativeReader>> SpeculativeReader::create(Session& session,
                                                                     const SpeculateOptions& options,
                                                                     std::unique_ptr<Proposer> proposer) {
  ISTHMUS_RETURN_IF_ERROR(check_options(session, options));
  SpeculateOptions fitting = options;
  fitting.max_draft = std::min(options.max_draft, session.model().context() - 1);
  ISTHMUS_RETURN_IF_ERROR(session.reserve_chain(fitting.max_draft + 1));
  return std::unique_ptr<SpeculativeReader>(
      new SpeculativeReader(session, std::move(fitting), std::move(proposer)));
}

void SpeculativeReader::begin(std::span<const TokenId> text) {
  for (const TokenId token : text) proposer_->push(token);
}

std::span<const float> SpeculativeReader::logits() const {
  return verified_ > 0 ? session_.chain_logits(row_) : session_.logits();
}

double SpeculativeReader::now() const {
  if (options_.clock) return options_.clock();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool SpeculativeReader::take(TokenId token) {
  note_guess(token);
  proposer_->push(token);
  if (row_ + 1 < verified_ && chain_[row_ + 1] == token) {
    ++row_;
    ++figures_.accepted;
    return true;
  }
  settle();
  return false;
}

/// Compares what was drafted at the place of `token`, verified or not.
void SpeculativeReader::note_guess(TokenId token) {
  if (row_ >= guess_.tokens) return;
  const bool right = chain_[row_ + 1] == token;
  controller_.note_token(guess_.match + row_, right);
  if (!right) guess_.tokens = 0;
}

void SpeculativeReader::settle() {
  guess_ = {};
  if (verified_ == 0) return;
  controller_.note_verified(verified_, row_ + 1, step_seconds_);
  (void)session_.keep_chain(row_ + 1);  // the chain is there: nothing else changes the session meanwhile
  verified_ = 0;
  row_ = 0;
}

Status SpeculativeReader::read(TokenId token, size_t most) {
  chain_[0] = token;
  guess_ = proposer_->propose(std::span(chain_).subspan(1));
  const size_t room = session_.chain_room();
  most = std::min({most, guess_.tokens, room > 0 ? room - 1 : 0});
  const size_t drafted = controller_.choose(guess_.match, most);
  if (drafted == 0) return read_plain();
  const double start = now();
  const Status status = session_.try_chain(std::span(chain_).first(drafted + 1));
  // KV blocks are shared with other sessions: there may be room for one token and not for a draft.
  if (status.code() == Code::kResourceExhausted) return read_plain();
  ISTHMUS_RETURN_IF_ERROR(status);
  step_seconds_ = now() - start;
  guess_.tokens = drafted;
  verified_ = drafted + 1;
  row_ = 0;
  ++figures_.steps;
  figures_.drafted += drafted;
  return ok_status();
}

Status SpeculativeReader::read_plain() {
  const double start = now();
  ISTHMUS_RETURN_IF_ERROR(session_.append(std::span(chain_).first(1), Purpose::kGeneration, {}));
  controller_.note_plain(now() - start);
  return ok_status();
}

}  // namespace isthmus
