#include "engine/evaluate.h"

#include <algorithm>
#include <numeric>

#include "engine/kv_eviction.h"

namespace isthmus {
namespace {

constexpr size_t kHeadRows = 32;  // rows of logits made at once: 34 MB at a vocabulary of 262,144

}  // namespace

Result<std::unique_ptr<Scorer>> Scorer::create(std::shared_ptr<LanguageModel> model) {
  const RunShape shape = model->run_shape();
  if (shape.max_outputs < shape.max_tokens)
    return failed_precondition("the model was loaded for fewer rows than a step has");
  std::unique_ptr<Scorer> out(new Scorer(std::move(model)));
  ISTHMUS_ASSIGN_OR_RETURN(out->workspace_, out->model_->make_workspace());
  out->hidden_.resize(shape.max_tokens * out->model_->config().d_model);
  out->logits_.resize(kHeadRows * out->model_->config().vocab);
  return out;
}

Status Scorer::set_codec(const KvCodec& codec) {
  blocks_ = nullptr;  // before the next one: the two need not fit the memory limit together
  ISTHMUS_ASSIGN_OR_RETURN(blocks_, model_->make_pool(codec));
  return ok_status();
}

Status Scorer::run_step(KvSequence& kv, std::span<const TokenId> tokens, ScoreMode mode, size_t outputs_from,
                        QueryRecord* queries) {
  ISTHMUS_RETURN_IF_ERROR(kv.grow(tokens.size()));
  const ForwardSequence sequence{&kv, tokens, {}, queries};
  outputs_.resize(tokens.size() - outputs_from);
  std::iota(outputs_.begin(), outputs_.end(), static_cast<uint32_t>(outputs_from));
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = mode == ScoreMode::kWindow ? model_->prompt_compute() : model_->generation_compute();
  step.outputs = outputs_;
  step.hidden = hidden_.data();
  ISTHMUS_RETURN_IF_ERROR(model_->transformer().forward(step, *workspace_, model_->pool()));
  kv.commit(tokens.size());
  return ok_status();
}

Status Scorer::score(std::span<const TokenId> tokens, size_t first, size_t last, ScoreMode mode,
                     const StopPolicy& stop, const std::function<Status(size_t, std::span<float>)>& row) {
  const size_t vocab = model_->config().vocab;
  const size_t d = model_->config().d_model;
  const size_t step = mode == ScoreMode::kWindow ? workspace_->shape().max_tokens : 1;
  KvSequence kv = blocks_ == nullptr ? model_->make_sequence() : model_->transformer().make_sequence(blocks_);
  std::unique_ptr<KvEviction> eviction;
  if (model_->options().eviction.on()) {
    ISTHMUS_ASSIGN_OR_RETURN(
        eviction, KvEviction::create(model_->options().eviction, model_->transformer(), model_->ledger()));
  }
  QueryRecord* queries = eviction == nullptr ? nullptr : eviction->record();
  if (eviction != nullptr && !eviction->endless()) kv.put_off_coding();
  for (size_t at = 0, n = 0; at < last; at += n) {
    ISTHMUS_RETURN_IF_ERROR(stop.check());
    n = std::min(step, last - at);
    if (eviction != nullptr && eviction->endless()) n = std::min(n, model_->context() - kv.length());
    // What is measured is how well the rest is told from what is left of the first part.
    if (eviction != nullptr && at < first) n = std::min(n, first - at);
    if (eviction != nullptr && at == first && first > 0) {
      ISTHMUS_RETURN_IF_ERROR(eviction->evict(kv, tokens.first(at), *model_, *workspace_, stop).status());
      if (!eviction->endless()) kv.code_now();
    }
    n = std::min(n, kv.until_coding());
    const size_t from = first > at ? std::min(first - at, n) : 0;
    ISTHMUS_RETURN_IF_ERROR(run_step(kv, tokens.subspan(at, n), mode, from, queries));
    if (eviction != nullptr) ISTHMUS_RETURN_IF_ERROR(eviction->after_step(kv));
    for (size_t i = from; i < n; i += kHeadRows) {
      const size_t rows = std::min(kHeadRows, n - i);
      const Compute compute =
          mode == ScoreMode::kWindow ? model_->prompt_compute() : model_->generation_compute();
      ISTHMUS_RETURN_IF_ERROR(model_->transformer().head(hidden_.data() + (i - from) * d, rows, compute,
                                                         logits_.data(), *workspace_, model_->pool()));
      for (size_t r = 0; r < rows; ++r) {
        ISTHMUS_RETURN_IF_ERROR(row(at + i + r, {logits_.data() + r * vocab, vocab}));
      }
    }
  }
  return ok_status();
}

std::vector<std::vector<TokenId>> cut_windows(const Tokenizer& tokenizer, std::span<const TokenId> text,
                                              size_t length, size_t stride, size_t most) {
  std::vector<std::vector<TokenId>> out;
  for (size_t at = 0; at + length <= text.size() && out.size() < most; at += stride) {
    out.emplace_back(text.begin() + static_cast<ptrdiff_t>(at),
                     text.begin() + static_cast<ptrdiff_t>(at + length));
    if (tokenizer.adds_bos() && tokenizer.bos()) out.back().front() = *tokenizer.bos();
  }
  return out;
}

}  // namespace isthmus
