#include "engine/session.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace isthmus {

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<LanguageModel> model) {
  std::unique_ptr<Session> out(new Session(std::move(model)));
  ISTHMUS_ASSIGN_OR_RETURN(out->workspace_, out->model_->make_workspace());
  out->kv_ = out->model_->make_sequence();
  out->logits_.resize(out->model_->config().vocab);
  ISTHMUS_RETURN_IF_ERROR(out->set_eviction(out->model_->options().eviction));
  out->begin_coding();
  return out;
}

Status Session::set_eviction(const EvictionOptions& options) {
  std::unique_ptr<KvEviction> made;
  if (options.on()) {
    ISTHMUS_ASSIGN_OR_RETURN(made, KvEviction::create(options, model_->transformer(), model_->ledger()));
  }
  eviction_ = std::move(made);
  return ok_status();
}

Status Session::evict(const StopPolicy& stop) {
  if (eviction_ == nullptr) return ok_status();
  forget_tried();
  ISTHMUS_RETURN_IF_ERROR(eviction_->evict(kv_, tokens_, *model_, *workspace_, stop).status());
  if (!endless()) kv_.code_now();
  return ok_status();
}

/// Keys that may go are chosen from what was written.
void Session::begin_coding() {
  if (eviction_ != nullptr && !endless()) {
    kv_.put_off_coding();
  } else {
    kv_.code_now();
  }
}

Status Session::append(std::span<const TokenId> tokens, Purpose purpose, const StopPolicy& stop,
                       size_t best) {
  if (tokens.size() > room()) {
    return resource_exhausted("the context is full: " + std::to_string(tokens_.size()) + " tokens held, " +
                              std::to_string(tokens.size()) + " more asked for, " +
                              std::to_string(model_->context()) + " fit");
  }
  const size_t step_size = workspace_->shape().max_tokens;
  while (!tokens.empty()) {
    ISTHMUS_RETURN_IF_ERROR(stop.check());
    size_t n = std::min(step_size, tokens.size());
    if (endless()) n = std::min(n, model_->context() - kv_.length());
    n = std::min(n, kv_.until_coding());
    ISTHMUS_RETURN_IF_ERROR(step(tokens.first(n), purpose, n == tokens.size(), best));
    tokens = tokens.subspan(n);
  }
  return ok_status();
}

void Session::forget_tried() {
  tree_.clear();
  chain_.clear();
}

Status Session::step(std::span<const TokenId> tokens, Purpose purpose, bool last, size_t best) {
  forget_tried();
  ISTHMUS_RETURN_IF_ERROR(kv_.grow(tokens.size()));
  QueryRecord* queries = eviction_ == nullptr ? watched_ : eviction_->record();
  const ForwardSequence sequence{&kv_, tokens, {}, queries};
  const auto newest = static_cast<uint32_t>(tokens.size() - 1);
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = purpose == Purpose::kPrompt ? model_->prompt_compute() : model_->generation_compute();
  if (last) {
    step.outputs = {&newest, 1};
    step.logits = logits_.data();
    step.best = best;
  }
  logits_valid_ = false;
  best_ = best;
  row_ = 0;
  Status status = model_->transformer().forward(step, *workspace_, model_->pool());
  if (!status.ok()) {
    kv_.commit(0);
    return status;
  }
  kv_.commit(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  logits_valid_ = last;
  return after_step();
}

KvFigures Session::kv_figures() const {
  KvFigures out;
  out.bytes = kv_bytes();
  out.exactness = kv_.exactness();
  out.pruned = pruned();
  out.codec = kv_bits_name(model_->options().kv_codec);
  if (eviction_ == nullptr) return out;
  out.policy = eviction_->options().policy;
  out.keys_before = eviction_->report().keys_before;
  out.keys_after = eviction_->report().keys_after;
  return out;
}

Status Session::try_tree(std::span<const TokenId> tokens, std::span<const int32_t> parents,
                         std::vector<float>& logits) {
  if (tokens.size() > room()) return resource_exhausted("the context is too full for the token tree");
  if (tokens.size() > kv_.until_coding()) {
    return resource_exhausted("a token tree of " + std::to_string(tokens.size()) +
                              " tokens goes beyond the next coding of KV, in " +
                              std::to_string(kv_.until_coding()));
  }
  forget_tried();
  ISTHMUS_RETURN_IF_ERROR(kv_.grow(tokens.size()));
  std::vector<uint32_t> outputs(tokens.size());
  std::iota(outputs.begin(), outputs.end(), 0U);
  logits.resize(tokens.size() * model_->config().vocab);
  const ForwardSequence sequence{&kv_, tokens, parents};
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = model_->generation_compute();
  step.outputs = outputs;
  step.logits = logits.data();
  Status status = model_->transformer().forward(step, *workspace_, model_->pool());
  if (!status.ok()) {
    kv_.commit(0);
    return status;
  }
  tree_.assign(tokens.begin(), tokens.end());
  tree_parents_.assign(parents.begin(), parents.end());
  if (parents.empty()) {
    tree_parents_.resize(tokens.size());
    std::iota(tree_parents_.begin(), tree_parents_.end(), -1);
  }
  return ok_status();
}

Status Session::accept(std::span<const uint32_t> path) {
  if (tree_.empty()) return failed_precondition("accept: no token tree was tried since the text changed");
  int32_t parent = -1;
  for (const uint32_t index : path) {
    if (index >= tree_.size() || tree_parents_[index] != parent) {
      return invalid_argument("accept: token " + std::to_string(index) + " does not continue the path");
    }
    parent = static_cast<int32_t>(index);
  }
  ISTHMUS_RETURN_IF_ERROR(kv_.accept(path));
  for (const uint32_t index : path) tokens_.push_back(tree_[index]);
  tree_.clear();
  if (!path.empty()) logits_valid_ = false;
  return after_step();
}

Status Session::reserve_chain(size_t tokens) {
  const RunShape& shape = workspace_->shape();
  const size_t most = std::min(shape.max_outputs, shape.max_tokens);
  if (tokens == 0 || tokens > most) {
    return invalid_argument("a chain of " + std::to_string(tokens) +
                            " tokens; a step gives logits for 1 to " + std::to_string(most));
  }
  if (tokens <= chain_outputs_.size()) return ok_status();
  const size_t vocab = model_->config().vocab;
  chain_charge_.reset();
  ISTHMUS_ASSIGN_OR_RETURN(chain_charge_,
                           model_->ledger().charge(MemoryKind::kWork, (tokens - 1) * vocab * sizeof(float)));
  logits_.resize(std::max(logits_.size(), tokens * vocab));
  chain_.reserve(tokens);
  chain_outputs_.resize(tokens);
  std::iota(chain_outputs_.begin(), chain_outputs_.end(), 0U);
  return ok_status();
}

Status Session::try_chain(std::span<const TokenId> tokens) {
  if (tokens.empty() || tokens.size() > chain_outputs_.size()) {
    return invalid_argument("a chain of " + std::to_string(tokens.size()) +
                            " tokens, memory is reserved for " + std::to_string(chain_outputs_.size()));
  }
  if (tokens.size() > chain_room()) return resource_exhausted("the context is too full for the chain");
  forget_tried();
  ISTHMUS_RETURN_IF_ERROR(kv_.grow(tokens.size()));
  const ForwardSequence sequence{&kv_, tokens, {}};
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = model_->generation_compute();
  step.outputs = std::span(chain_outputs_).first(tokens.size());
  step.logits = logits_.data();
  logits_valid_ = false;
  best_ = 0;
  Status status = model_->transformer().forward(step, *workspace_, model_->pool());
  if (!status.ok()) {
    kv_.commit(0);
    return status;
  }
  chain_.assign(tokens.begin(), tokens.end());
  return ok_status();
}

Status Session::keep_chain(size_t n) {
  if (chain_.empty()) return failed_precondition("keep_chain: no chain was tried since the text changed");
  if (n > chain_.size()) {
    return invalid_argument("keep_chain: " + std::to_string(n) + " of " + std::to_string(chain_.size()) +
                            " tokens");
  }
  kv_.commit(n);
  tokens_.insert(tokens_.end(), chain_.begin(), chain_.begin() + static_cast<ptrdiff_t>(n));
  chain_.clear();
  logits_valid_ = n > 0;
  row_ = n > 0 ? n - 1 : 0;
  return after_step();
}

Status Session::truncate(size_t length) {
  const size_t gone = slid();
  if (gone > 0 && length > 0 && length < gone + sink_keys(eviction_->options())) {
    return failed_precondition("truncate to " + std::to_string(length) +
                               " tokens, but the keys before token " +
                               std::to_string(gone + sink_keys(eviction_->options())) + " were given up");
  }
  ISTHMUS_RETURN_IF_ERROR(kv_.truncate(length - std::min(gone, length)));
  forget_tried();
  if (length != tokens_.size()) logits_valid_ = false;
  tokens_.resize(length);
  if (length == 0 && eviction_ != nullptr) eviction_->begin();
  if (length == 0) begin_coding();
  return ok_status();
}

size_t Session::keep_common_prefix(std::span<const TokenId> wanted) {
  size_t n = 0;
  while (n < tokens_.size() && n + 1 < wanted.size() && tokens_[n] == wanted[n]) ++n;
  if (truncate(n).ok()) return n;
  // Keys of the common part were given up since, or coded with later ones: it is read anew from there.
  n = slid() > 0 ? 0 : kv_.reachable(n);
  (void)truncate(n);
  return n;
}

Status Session::append_stored(const KvRecord& record, size_t from, size_t count) {
  ISTHMUS_RETURN_IF_ERROR(truncate(tokens_.size() / kBlockKeys * kBlockKeys));
  if (count * kBlockKeys > room()) return resource_exhausted("the stored text does not fit the context");
  logits_valid_ = false;
  ISTHMUS_RETURN_IF_ERROR(record.append_to(kv_, from, count));
  const auto first = record.tokens().begin() + static_cast<ptrdiff_t>(from * kBlockKeys);
  tokens_.insert(tokens_.end(), first, first + static_cast<ptrdiff_t>(count * kBlockKeys));
  return ok_status();
}

Result<std::unique_ptr<Session>> Session::fork() const {
  std::unique_ptr<Session> out(new Session(model_));
  ISTHMUS_ASSIGN_OR_RETURN(out->workspace_, out->model_->make_workspace());
  out->kv_ = kv_.fork();
  out->tokens_ = tokens_;
  out->logits_.resize(model_->config().vocab);
  const auto newest = logits();
  std::copy(newest.begin(), newest.end(), out->logits_.begin());
  out->logits_valid_ = logits_valid_;
  out->best_ = best_;
  out->eviction_.reset();
  if (eviction_ != nullptr) {
    ISTHMUS_ASSIGN_OR_RETURN(out->eviction_, eviction_->fork());
  }
  return out;
}

}  // namespace isthmus
