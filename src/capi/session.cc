// Sampling and sessions.
#include <cmath>

#include "capi/border.h"
#include "capi/handles.h"

namespace isthmus::capi {
namespace {

isthmus_sampler_params default_sampler_params() {
  const SamplerParams engine;
  isthmus_sampler_params out{};
  out.struct_size = sizeof(out);
  out.temperature = engine.temperature;
  out.top_k = engine.top_k;
  out.top_p = engine.top_p;
  out.min_p = engine.min_p;
  out.typical = engine.typical;
  out.repetition_penalty = engine.repetition_penalty;
  out.presence_penalty = engine.presence_penalty;
  out.frequency_penalty = engine.frequency_penalty;
  out.penalty_window = engine.penalty_window;
  out.logprobs = engine.logprobs;
  out.seed = engine.seed;
  return out;
}

void copy_logprobs(const std::vector<TokenLogprob>& from, std::vector<isthmus_logprob>& to) {
  to.clear();
  to.reserve(from.size());
  for (const auto& item : from) to.push_back({item.token, item.logprob});
}

}  // namespace

void SampledView::assign(const Sampled& sampled) {
  copy_logprobs(sampled.top, top_);
  copy_logprobs(sampled.top_final, top_final_);
  view_ = {sampled.token, sampled.logprob,   sampled.final_logprob, top_.data(),
           top_.size(),   top_final_.data(), top_final_.size()};
}

Result<SamplerParams> sampler_params(const isthmus_sampler_params* from, size_t vocab) {
  isthmus_sampler_params known = default_sampler_params();
  ISTHMUS_RETURN_IF_ERROR(read_struct(from, &known, "sampler"));
  ISTHMUS_ASSIGN_OR_RETURN(const auto biases,
                           array_of(known.logit_bias, known.logit_bias_count, "sampler.logit_bias"));
  SamplerParams out;
  out.temperature = known.temperature;
  out.top_k = known.top_k;
  out.top_p = known.top_p;
  out.min_p = known.min_p;
  out.typical = known.typical;
  out.repetition_penalty = known.repetition_penalty;
  out.presence_penalty = known.presence_penalty;
  out.frequency_penalty = known.frequency_penalty;
  out.penalty_window = known.penalty_window;
  out.logprobs = known.logprobs;
  out.seed = known.seed;
  for (const auto& item : biases) out.logit_bias.emplace_back(item.token, item.bias);
  ISTHMUS_RETURN_IF_ERROR(check_sampler_params(out, vocab).with_context("sampler"));
  return out;
}

namespace {

Status draw(isthmus_sampler& sampler, std::span<const float> logits, std::span<const TokenId> history,
            const isthmus_sampled** sampled) {
  ISTHMUS_ASSIGN_OR_RETURN(const Sampled drawn, sampler.sampler.sample(logits, history));
  sampler.sampled.assign(drawn);
  *sampled = sampler.sampled.get();
  return ok_status();
}

Status no_logits() {
  return failed_precondition("there are no logits after the newest token; append at least one token first");
}

}  // namespace
}  // namespace isthmus::capi

using namespace isthmus;        // NOLINT: what follows is a thin border over that namespace
using namespace isthmus::capi;  // NOLINT

void isthmus_sampler_params_init(isthmus_sampler_params* params, size_t struct_size) {
  init_struct(default_sampler_params(), params, struct_size);
}

isthmus_code isthmus_sampler_create(const isthmus_model* model, const isthmus_sampler_params* params,
                                    isthmus_sampler** sampler, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(sampler, "sampler"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_ASSIGN_OR_RETURN(SamplerParams known, sampler_params(params, model->model->config().vocab));
    *sampler = new isthmus_sampler{model->model, Sampler(std::move(known)), {}};
    return ok_status();
  });
}

isthmus_code isthmus_sampler_sample(isthmus_sampler* sampler, const float* logits, size_t count,
                                    const isthmus_token* history, size_t history_count,
                                    const isthmus_sampled** sampled, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(sampled, "sampled"));
    ISTHMUS_RETURN_IF_ERROR(need(sampler, "sampler"));
    ISTHMUS_RETURN_IF_ERROR(need(logits, "logits"));
    const size_t vocab = sampler->model->config().vocab;
    if (count != vocab) {
      return invalid_argument("count is " + std::to_string(count) + "; a row of logits has " +
                              std::to_string(vocab));
    }
    const std::span<const float> row(logits, count);
    for (size_t i = 0; i < count; ++i) {
      if (std::isnan(row[i])) return invalid_argument("logits[" + std::to_string(i) + "] is not a number");
    }
    ISTHMUS_ASSIGN_OR_RETURN(const auto past, array_of(history, history_count, "history"));
    ISTHMUS_RETURN_IF_ERROR(check_tokens(past, vocab, "history"));
    return draw(*sampler, row, past, sampled);
  });
}

isthmus_code isthmus_sampler_sample_session(isthmus_sampler* sampler, const isthmus_session* session,
                                            const isthmus_sampled** sampled, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(sampled, "sampled"));
    ISTHMUS_RETURN_IF_ERROR(need(sampler, "sampler"));
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    if (sampler->model != session->model) {
      return invalid_argument("the sampler and the session belong to different models");
    }
    const auto logits = session->session->logits();
    if (logits.empty()) return no_logits();
    return draw(*sampler, logits, session->session->tokens(), sampled);
  });
}

void isthmus_sampler_free(isthmus_sampler* sampler) { delete sampler; }

isthmus_code isthmus_session_create(isthmus_model* model, isthmus_session** session, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(session, "session"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    auto out = std::make_unique<isthmus_session>();
    out->model = model->model;
    ISTHMUS_ASSIGN_OR_RETURN(out->session, Session::create(model->model));
    *session = out.release();
    return ok_status();
  });
}

void isthmus_session_free(isthmus_session* session) { delete session; }

isthmus_code isthmus_session_tokens(const isthmus_session* session, const isthmus_token** tokens,
                                    size_t* count, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(tokens, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(need_out(count, "count"));
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    const auto held = session->session->tokens();
    *tokens = held.data();
    *count = held.size();
    return ok_status();
  });
}

isthmus_code isthmus_session_append(isthmus_session* session, const isthmus_token* tokens, size_t count,
                                    isthmus_purpose purpose, const isthmus_limits* limits,
                                    isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    ISTHMUS_ASSIGN_OR_RETURN(const auto added, array_of(tokens, count, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(check_tokens(added, session->model->config().vocab, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(check_choice(static_cast<int32_t>(purpose), ISTHMUS_GENERATION, "purpose"));
    ISTHMUS_ASSIGN_OR_RETURN(const StopPolicy stop, stop_policy(limits));
    const Purpose known = purpose == ISTHMUS_PROMPT ? Purpose::kPrompt : Purpose::kGeneration;
    return session->session->append(added, known, stop);
  });
}

isthmus_code isthmus_session_logits(const isthmus_session* session, const float** logits, size_t* count,
                                    isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(logits, "logits"));
    if (count != nullptr) *count = 0;
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    const auto row = session->session->logits();
    if (row.empty()) return no_logits();
    *logits = row.data();
    if (count != nullptr) *count = row.size();
    return ok_status();
  });
}

isthmus_code isthmus_session_truncate(isthmus_session* session, size_t length, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    return session->session->truncate(length);
  });
}

isthmus_code isthmus_session_fork(const isthmus_session* session, isthmus_session** fork,
                                  isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(fork, "fork"));
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    auto out = std::make_unique<isthmus_session>();
    out->model = session->model;
    ISTHMUS_ASSIGN_OR_RETURN(out->session, session->session->fork());
    *fork = out.release();
    return ok_status();
  });
}

isthmus_code isthmus_session_try_tree(isthmus_session* session, const isthmus_token* tokens,
                                      const int32_t* parents, size_t count, const float** logits,
                                      isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(logits, "logits"));
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    ISTHMUS_RETURN_IF_ERROR(need(tokens, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(need(parents, "parents"));
    const size_t most = session->model->options().step_outputs;
    if (count == 0 || count > most) {
      return invalid_argument("count is " + std::to_string(count) + "; a token tree may have 1 to " +
                              std::to_string(most) + " tokens (options.tree_tokens)");
    }
    ISTHMUS_RETURN_IF_ERROR(check_tokens({tokens, count}, session->model->config().vocab, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(
        session->session->try_tree({tokens, count}, {parents, count}, session->tree_logits));
    *logits = session->tree_logits.data();
    return ok_status();
  });
}

isthmus_code isthmus_session_accept(isthmus_session* session, const uint32_t* path, size_t count,
                                    isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    ISTHMUS_ASSIGN_OR_RETURN(const auto kept, array_of(path, count, "path"));
    return session->session->accept(kept);
  });
}
