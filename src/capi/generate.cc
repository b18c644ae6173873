// Generating, and what a run leaves behind.
#include <algorithm>
#include <cmath>

#include "capi/border.h"
#include "capi/handles.h"
#include "os/cpu.h"

namespace {

using namespace isthmus;        // NOLINT: this file is a thin border over that namespace
using namespace isthmus::capi;  // NOLINT

static_assert(ISTHMUS_FINISH_STOP_TOKEN == static_cast<int>(FinishReason::kStopToken));
static_assert(ISTHMUS_FINISH_STOP_STRING == static_cast<int>(FinishReason::kStopString));
static_assert(ISTHMUS_FINISH_LENGTH == static_cast<int>(FinishReason::kLength));
static_assert(ISTHMUS_FINISH_CONTEXT == static_cast<int>(FinishReason::kContext));
static_assert(ISTHMUS_FINISH_CANCELLED == static_cast<int>(FinishReason::kCancelled));
static_assert(ISTHMUS_FINISH_DEADLINE == static_cast<int>(FinishReason::kDeadline));

isthmus_generate_options default_generate_options() {
  isthmus_generate_options out{};
  out.struct_size = sizeof(out);
  return out;
}

/// The request's callbacks. A text callback that asked for the end is not called again.
void set_callbacks(const isthmus_generate_options& options, GenerateRequest& request) {
  if (options.on_text != nullptr) {
    request.on_text = [call = options.on_text, user = options.user, ended = false,
                       text = std::string()](std::string_view piece) mutable {
      text = piece;  // a copy, because it must end with a zero byte
      if (!ended) ended = call(user, text.c_str(), text.size()) != 0;
      return !ended;
    };
  }
  if (options.on_token != nullptr) {
    request.on_token = [call = options.on_token, user = options.user,
                        view = SampledView()](const Sampled& sampled) mutable {
      view.assign(sampled);
      call(user, view.get());
    };
  }
}

Result<GenerateRequest> generate_request(const isthmus_session& session, std::span<const TokenId> prompt,
                                         const isthmus_generate_options* options) {
  isthmus_generate_options known = default_generate_options();
  ISTHMUS_RETURN_IF_ERROR(read_struct(options, &known, "options"));
  const size_t vocab = session.model->config().vocab;
  GenerateRequest out;
  ISTHMUS_RETURN_IF_ERROR(check_tokens(prompt, vocab, "prompt"));
  out.prompt.assign(prompt.begin(), prompt.end());
  ISTHMUS_ASSIGN_OR_RETURN(out.sampler, sampler_params(known.sampler, vocab));
  ISTHMUS_ASSIGN_OR_RETURN(const auto stops, array_of(known.stops, known.stop_count, "options.stops"));
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i] == nullptr || stops[i][0] == '\0') {
      return invalid_argument("options.stops[" + std::to_string(i) + "] is null or empty");
    }
    out.stops.emplace_back(stops[i]);
  }
  ISTHMUS_RETURN_IF_ERROR(check_choice(known.on_full, ISTHMUS_SHIFT_WHEN_FULL, "options.on_full"));
  if (known.max_tokens > 0) out.max_tokens = known.max_tokens;
  out.ignore_stop_tokens = known.ignore_stop_tokens != 0;
  out.on_full = known.on_full == ISTHMUS_SHIFT_WHEN_FULL ? ContextPolicy::kShift : ContextPolicy::kStop;
  out.keep_tokens = known.keep_tokens;
  const size_t most_draft = session.model->options().draft_tokens;
  if (known.max_draft > most_draft) {
    return invalid_argument("options.max_draft is " + std::to_string(known.max_draft) +
                            "; the model was loaded for drafts of at most " + std::to_string(most_draft) +
                            " tokens (draft_tokens of its options)");
  }
  out.speculate.max_draft = known.max_draft;
  set_callbacks(known, out);
  return out;
}

/// The value that `share` of the sorted values do not exceed (nearest rank); 0 for none.
double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

void isthmus_generate_options_init(isthmus_generate_options* options, size_t struct_size) {
  init_struct(default_generate_options(), options, struct_size);
}

const char* isthmus_finish_reason_name(isthmus_finish_reason reason) {
  // Names are string literals, so they end with a zero byte.
  return finish_reason_name(static_cast<FinishReason>(reason)).data();
}

isthmus_code isthmus_generate(isthmus_session* session, const isthmus_token* prompt, size_t count,
                              const isthmus_generate_options* options, const isthmus_limits* limits,
                              isthmus_result** result, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(result, "result"));
    ISTHMUS_RETURN_IF_ERROR(need(session, "session"));
    const SessionUse use(*session);
    ISTHMUS_RETURN_IF_ERROR(use.status());
    ISTHMUS_ASSIGN_OR_RETURN(const auto tokens, array_of(prompt, count, "prompt"));
    ISTHMUS_ASSIGN_OR_RETURN(GenerateRequest request, generate_request(*session, tokens, options));
    ISTHMUS_ASSIGN_OR_RETURN(request.stop, stop_policy(limits));
    auto out = std::make_unique<isthmus_result>();
    ISTHMUS_ASSIGN_OR_RETURN(out->result, generate(*session->session, request));
    out->details.resize(out->result.details.size());
    for (size_t i = 0; i < out->details.size(); ++i) out->details[i].assign(out->result.details[i]);
    out->peak_bytes = os::peak_resident_bytes();
    *result = out.release();
    return ok_status();
  });
}

void isthmus_result_free(isthmus_result* result) { delete result; }

const char* isthmus_result_text(const isthmus_result* result, size_t* length) {
  if (length != nullptr) *length = result != nullptr ? result->result.text.size() : 0;
  return result != nullptr ? result->result.text.c_str() : "";
}

const isthmus_token* isthmus_result_tokens(const isthmus_result* result, size_t* count) {
  if (count != nullptr) *count = result != nullptr ? result->result.tokens.size() : 0;
  return result != nullptr ? result->result.tokens.data() : nullptr;
}

isthmus_finish_reason isthmus_result_reason(const isthmus_result* result) {
  return result != nullptr ? static_cast<isthmus_finish_reason>(result->result.reason)
                           : ISTHMUS_FINISH_STOP_TOKEN;
}

const char* isthmus_result_stop_string(const isthmus_result* result) {
  return result != nullptr ? result->result.stop_string.c_str() : "";
}

const isthmus_sampled* isthmus_result_detail(const isthmus_result* result, size_t i) {
  return result != nullptr && i < result->details.size() ? result->details[i].get() : nullptr;
}

isthmus_code isthmus_result_figures(const isthmus_result* result, isthmus_figures* figures,
                                    isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need(result, "result"));
    const RunFigures& run = result->result.figures;
    std::vector<double> gaps = run.gap_seconds;
    std::sort(gaps.begin(), gaps.end());
    isthmus_figures out{};
    out.prompt_tokens = run.prompt_tokens;
    out.reused_tokens = run.reused_tokens;
    out.generated_tokens = run.generated_tokens;
    out.context_shifts = run.context_shifts;
    out.prefill_seconds = run.prefill_seconds;
    out.ttft_seconds = run.ttft_seconds;
    out.decode_seconds = run.decode_seconds;
    out.tbt_p50_seconds = percentile(gaps, 0.50);
    out.tbt_p99_seconds = percentile(gaps, 0.99);
    out.peak_memory_bytes = result->peak_bytes;
    out.gap_seconds = run.gap_seconds.data();
    out.gap_count = run.gap_seconds.size();
    out.drafted_tokens = run.speculation.drafted;
    out.accepted_tokens = run.speculation.accepted;
    out.verify_steps = run.speculation.steps;
    return write_struct(out, figures, "figures");
  });
}
