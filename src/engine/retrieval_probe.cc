#include "engine/retrieval_probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "engine/kv_zip.h"
#include "kernels/float_kernels.h"

namespace isthmus {
namespace {

constexpr size_t kProbeWindow = 32;

}  // namespace

RetrievalProbe::RetrievalProbe(std::shared_ptr<LanguageModel> model)
    : model_(std::move(model)),
      geometry_(model_->transformer().attention_geometry()),
      kv_(model_->make_sequence()),
      record_(geometry_, kProbeWindow, true),
      logits_(kProbeOutputs * model_->config().vocab) {}

Result<std::unique_ptr<RetrievalProbe>> RetrievalProbe::create(std::shared_ptr<LanguageModel> model) {
  if (model->run_shape().max_outputs < kProbeOutputs || model->options().eviction.on()) {
    return failed_precondition("the model was not loaded for measuring retrieval");
  }
  std::unique_ptr<RetrievalProbe> out(new RetrievalProbe(std::move(model)));
  ISTHMUS_ASSIGN_OR_RETURN(out->workspace_, out->model_->make_workspace());
  return out;
}

Status RetrievalProbe::run(KvSequence& kv, QueryRecord* record, std::span<const TokenId> tokens,
                           std::span<const uint32_t> outputs) {
  const size_t most = workspace_->shape().max_tokens;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(most, tokens.size()));
    tokens = tokens.subspan(part.size());
    ISTHMUS_RETURN_IF_ERROR(kv.grow(part.size()));
    const ForwardSequence sequence{&kv, part, {}, record};
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = model_->prompt_compute();
    if (tokens.empty() && !outputs.empty()) {
      step.outputs = outputs;
      step.logits = logits_.data();
    }
    ISTHMUS_RETURN_IF_ERROR(model_->transformer().forward(step, *workspace_, model_->pool()));
    kv.commit(part.size());
  }
  return ok_status();
}

Status RetrievalProbe::read(std::span<const TokenId> context) {
  kv_.clear();
  context_.assign(context.begin(), context.end());
  record_ = QueryRecord(geometry_, kProbeWindow, true);
  return run(kv_, &record_, context, {});
}

Result<RetrievalProbe::Asked> RetrievalProbe::ask(const EvictionOptions& policy,
                                                  std::span<const TokenId> question,
                                                  std::span<const TokenId> answer, bool known) {
  const size_t most = std::min(kProbeOutputs - 1, workspace_->shape().max_tokens / 2);
  if (question.empty() || answer.empty() || question.size() > most || answer.size() > most) {
    return invalid_argument("a question and an answer have 1 to " + std::to_string(most) + " tokens");
  }
  KvSequence kv = kv_.fork();
  QueryRecord record = record_;
  std::vector<TokenId> rest(question.begin(), question.end());
  if (known) {
    ISTHMUS_RETURN_IF_ERROR(run(kv, &record, question.first(question.size() - 1), {}));
    rest = {question.back()};
  }
  EvictionReport report;
  if (policy.rereads()) {
    std::vector<TokenId> text = context_;
    if (known) text.insert(text.end(), question.begin(), question.end() - 1);
    ISTHMUS_ASSIGN_OR_RETURN(const auto scores, kvzip_scores(*model_, geometry_, kv, text, *workspace_, {}));
    ISTHMUS_ASSIGN_OR_RETURN(report, evict_scored(policy, geometry_, scores, kv));
  } else {
    ISTHMUS_ASSIGN_OR_RETURN(report, evict(policy, geometry_, &record, kv, model_->pool()));
  }
  Asked out;
  out.kept = report.keys_before == 0
                 ? 1.0
                 : static_cast<double>(report.keys_after) / static_cast<double>(report.keys_before);
  out.kv_bytes = kv.bytes();
  // The last token of the answer needs no logits after it.
  std::vector<uint32_t> outputs(answer.size());
  std::iota(outputs.begin(), outputs.end(), static_cast<uint32_t>(rest.size() - 1));
  rest.insert(rest.end(), answer.begin(), answer.end() - 1);
  ISTHMUS_RETURN_IF_ERROR(run(kv, nullptr, rest, outputs));
  const FloatKernels& kernels = float_kernels();
  const size_t vocab = model_->config().vocab;
  out.right = true;
  for (size_t i = 0; i < answer.size(); ++i) {
    const float* row = logits_.data() + i * vocab;
    const size_t best = kernels.argmax(row, vocab);
    const double sum = kernels.sum_exp(row, vocab, row[best]);
    const auto wanted = static_cast<size_t>(answer[i]);
    out.right = out.right && best == wanted;
    out.logprob += double{row[wanted]} - double{row[best]} - std::log(sum);
  }
  return out;
}

}  // namespace isthmus
