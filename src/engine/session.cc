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
  return out;
}

Status Session::append(std::span<const TokenId> tokens, Purpose purpose, const StopPolicy& stop) {
  if (tokens.size() > room()) {
    return resource_exhausted("the context is full: " + std::to_string(tokens_.size()) + " tokens held, " +
                              std::to_string(tokens.size()) + " more asked for, " +
                              std::to_string(model_->context()) + " fit");
  }
  const size_t step_size = workspace_->shape().max_tokens;
  while (!tokens.empty()) {
    ISTHMUS_RETURN_IF_ERROR(stop.check());
    const size_t n = std::min(step_size, tokens.size());
    ISTHMUS_RETURN_IF_ERROR(step(tokens.first(n), purpose, n == tokens.size()));
    tokens = tokens.subspan(n);
  }
  return ok_status();
}

Status Session::step(std::span<const TokenId> tokens, Purpose purpose, bool last) {
  tree_.clear();
  ISTHMUS_RETURN_IF_ERROR(kv_.grow(tokens.size()));
  const ForwardSequence sequence{&kv_, tokens, {}};
  const auto newest = static_cast<uint32_t>(tokens.size() - 1);
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = purpose == Purpose::kPrompt ? model_->prompt_compute() : model_->generation_compute();
  if (last) {
    step.outputs = {&newest, 1};
    step.logits = logits_.data();
  }
  logits_valid_ = false;
  Status status = model_->transformer().forward(step, *workspace_, model_->pool());
  if (!status.ok()) {
    kv_.commit(0);
    return status;
  }
  kv_.commit(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  logits_valid_ = last;
  return ok_status();
}

Status Session::try_tree(std::span<const TokenId> tokens, std::span<const int32_t> parents,
                         std::vector<float>& logits) {
  if (tokens.size() > room()) return resource_exhausted("the context is too full for the token tree");
  tree_.clear();
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
  return ok_status();
}

Status Session::truncate(size_t length) {
  ISTHMUS_RETURN_IF_ERROR(kv_.truncate(length));
  tree_.clear();
  if (length != tokens_.size()) logits_valid_ = false;
  tokens_.resize(length);
  return ok_status();
}

size_t Session::keep_common_prefix(std::span<const TokenId> wanted) {
  size_t n = 0;
  while (n < tokens_.size() && n + 1 < wanted.size() && tokens_[n] == wanted[n]) ++n;
  (void)truncate(n);  // n <= the length held: it cannot fail
  return n;
}

Result<std::unique_ptr<Session>> Session::fork() const {
  std::unique_ptr<Session> out(new Session(model_));
  ISTHMUS_ASSIGN_OR_RETURN(out->workspace_, out->model_->make_workspace());
  out->kv_ = kv_.fork();
  out->tokens_ = tokens_;
  out->logits_ = logits_;
  out->logits_valid_ = logits_valid_;
  return out;
}

}  // namespace isthmus
