// isthmus run: one prompt, one answer. The answer goes to stdout, everything else to stderr.
#include <fmt/core.h>

#include <chrono>
#include <memory>

#include "apps/isthmus/figures.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/model_args.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/prefix_args.h"
#include "apps/isthmus/schema_args.h"
#include "apps/isthmus/session_args.h"
#include "engine/chat.h"
#include "engine/generate.h"
#include "os/energy.h"

namespace isthmus::cli {
namespace {

struct RunOptions {
  ModelArgs model;
  SamplerArgs sampler;
  LookupArgs lookup;
  PrefixArgs prefix;
  SchemaArgs schema;
  SessionArgs kept;
  std::string prompt;
  std::string system;
  std::vector<std::string> stops;
  size_t max_tokens = SIZE_MAX;  // until the model stops or the context is full
  bool raw = false;
  bool ignore_eos = false;
  bool shift = false;
  bool quiet = false;
  uint32_t logprobs = 0;
  double timeout = 0;  // seconds; 0: none
};

int64_t run_seconds_since_epoch() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Result<std::vector<TokenId>> encode_prompt(const LanguageModel& model, const RunOptions& o,
                                           const std::string& prompt) {
  if (o.raw) return model.tokenizer().encode(prompt, Specials::kParse, true);
  ChatRequest chat;
  if (!o.system.empty()) chat.messages.push_back({{"role", "system"}, {"content", o.system}});
  chat.messages.push_back({{"role", "user"}, {"content", prompt}});
  chat.now = run_seconds_since_epoch();
  return encode_chat(model, chat);
}

nlohmann::ordered_json logprobs_json(const LanguageModel& model, const std::vector<TokenLogprob>& list) {
  auto out = nlohmann::ordered_json::array();
  for (const auto& item : list) {
    out.push_back({{"id", item.token},
                   {"token", printable(model.tokenizer().piece(item.token, true))},
                   {"logprob", item.logprob}});
  }
  return out;
}

nlohmann::ordered_json result_json(const LanguageModel& model, const RunOptions& o,
                                   const GenerateResult& result, const SamplerParams& sampler,
                                   const std::optional<Energy>& energy, const HeadFigures& head,
                                   PrefixCache& prefixes, const SchemaUse& schema, const SessionUse& kept) {
  nlohmann::ordered_json out = {
      {"model", o.model.model}, {"text", result.text}, {"finish_reason", finish_reason_name(result.reason)}};
  if (!result.stop_string.empty()) out["stop_string"] = result.stop_string;
  out["seed"] = sampler.seed;
  out["tokens"] = result.tokens;
  if (!result.details.empty()) {
    auto list = nlohmann::ordered_json::array();
    for (const Sampled& s : result.details) {
      list.push_back({{"id", s.token},
                      {"token", printable(model.tokenizer().piece(s.token, true))},
                      {"logprob", s.logprob},
                      {"top", logprobs_json(model, s.top)},
                      {"top_after_sampler", logprobs_json(model, s.top_final)}});
    }
    out["logprobs"] = list;
  }
  out["figures"] = figures_json(result.figures, energy);
  out["figures"]["planned_memory_bytes"] = model.memory_plan().total();
  out["packed_cache"] = packed_cache_json(model);
  out["head"] = head_json(model, &head);
  out["prefix_cache"] = prefixes.json();
  if (kept.on()) out["session"] = kept.json();
  if (schema.on()) out["schema"] = schema.json(result.figures.compose);
  return out;
}

/// Options that would have no effect beside each other are a mistake of whoever gave them.
Status check_combination(const RunOptions& o, const Context& context) {
  if (o.raw && !o.system.empty())
    return invalid_argument("--system needs the chat template that --raw leaves out");
  if (o.raw && !o.model.chat_template.empty()) {
    return invalid_argument("--template needs the chat template that --raw leaves out");
  }
  if (!o.schema.file.empty() && (o.raw || !o.system.empty())) {
    return invalid_argument(
        "the schema says whether there is a chat template and what is the system message: no --raw "
        "and no --system with --schema");
  }
  if (!o.kept.name.empty() && (!o.schema.file.empty() || o.raw || o.prefix.on || o.shift)) {
    return invalid_argument(
        "--session keeps a conversation as it is: no --schema, --raw, --shift or --prefix-cache with it");
  }
  if (o.logprobs > 0 && !context.json) return invalid_argument("--logprobs needs --json");
  return ok_status();
}

Result<std::string> read_prompt(const RunOptions& o, const CLI::App& app) {
  std::string prompt = o.prompt;
  if (app.count("PROMPT") == 0 || prompt == "-") {
    ISTHMUS_ASSIGN_OR_RETURN(prompt, read_typed_input("prompt"));
    // A prompt from a pipe ends with the newline of the last line, which nobody means.
    if (!prompt.empty() && prompt.back() == '\n') prompt.pop_back();
  }
  if (prompt.empty()) return invalid_argument("the prompt is empty");
  return prompt;
}

Status check_length(const LanguageModel& model, size_t tokens) {
  const bool endless = model.options().eviction.policy == KvPolicy::kStreaming;
  if (tokens <= model.context() || endless) return ok_status();
  const size_t most = model.config().context;
  return resource_exhausted(
      fmt::format("the prompt has {} tokens, the context holds {}; {}", tokens, model.context(),
                  tokens < most ? fmt::format("--ctx N gives more (this model: up to {})", most)
                                : fmt::format("this model was trained for {}", most)));
}

/// What was said before, and the question.
Status continue_conversation(const RunOptions& o, const std::string& prompt, SessionUse& kept,
                             Conversation& conversation) {
  ISTHMUS_RETURN_IF_ERROR(kept.restore(conversation));
  conversation.request().now = run_seconds_since_epoch();
  auto& messages = conversation.messages();
  if (!o.system.empty()) {
    if (!messages.empty()) {
      return invalid_argument("--system comes with the first message of a session, and '" + o.kept.name +
                              "' has some already");
    }
    messages.push_back({{"role", "system"}, {"content", o.system}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return ok_status();
}

Status run(const RunOptions& o, const CLI::App& app, const Context& context) {
  ISTHMUS_RETURN_IF_ERROR(check_combination(o, context));
  ISTHMUS_ASSIGN_OR_RETURN(const std::string prompt, read_prompt(o, app));
  GenerateRequest request;
  ISTHMUS_ASSIGN_OR_RETURN(request.sampler, sampler_params(app, o.sampler));
  request.sampler.logprobs = o.logprobs;
  ISTHMUS_ASSIGN_OR_RETURN(request.speculate.max_draft, draft_tokens(app, o.lookup));
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(o.model));
  options.draft_tokens = request.speculate.max_draft;
  ISTHMUS_ASSIGN_OR_RETURN(PrefixCache prefixes, PrefixCache::open(app, o.prefix, o.model, context));
  ISTHMUS_ASSIGN_OR_RETURN(SchemaUse schema, SchemaUse::open(app, o.schema));
  ISTHMUS_ASSIGN_OR_RETURN(SessionUse kept, SessionUse::open(app, o.kept, o.model, context, options));
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(o.model, std::move(options), context));
  request.stop.token = context.stop;
  std::unique_ptr<Session> own;
  if (kept.on()) {
    ISTHMUS_RETURN_IF_ERROR(kept.activate(model, request.stop));
  } else {
    ISTHMUS_ASSIGN_OR_RETURN(own, Session::create(model));
  }
  Session* const session = kept.on() ? &kept.session() : own.get();
  Conversation conversation(*model);
  if (kept.on()) {
    ISTHMUS_RETURN_IF_ERROR(continue_conversation(o, prompt, kept, conversation));
    ISTHMUS_ASSIGN_OR_RETURN(request.prompt, conversation.prompt());
  } else if (schema.on()) {
    ISTHMUS_RETURN_IF_ERROR(schema.compile(model, prefixes));
    ISTHMUS_RETURN_IF_ERROR(schema.ask(prompt, run_seconds_since_epoch(), *session, request));
  } else {
    ISTHMUS_ASSIGN_OR_RETURN(request.prompt, encode_prompt(*model, o, prompt));
    request.prefixes = prefixes.store();
  }
  ISTHMUS_RETURN_IF_ERROR(check_length(*model, request.prompt.size()));
  request.stops = o.stops;
  request.ignore_stop_tokens = o.ignore_eos;
  request.max_tokens = o.max_tokens;
  request.on_full = o.shift ? ContextPolicy::kShift : ContextPolicy::kStop;
  if (o.timeout > 0) {
    request.stop.deadline =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                               std::chrono::duration<double>(o.timeout));
  }
  bool writable = true;
  if (!context.json) {
    request.on_text = [&writable](std::string_view text) { return writable = write_answer(text); };
  }
  const MeterChoice meter = choose_meter();
  auto span = EnergySpan::start(*meter.meter, 0);
  ISTHMUS_ASSIGN_OR_RETURN(const GenerateResult result, generate(*session, request));
  // The frame says why, and it was no wish of the user.
  if (!writable) return ok_status();
  std::optional<Energy> energy;
  if (span.ok()) {
    const auto used = span->finish();
    if (used.ok()) energy = *used;
  }
  const bool stopped = result.reason == FinishReason::kCancelled;
  if (kept.on() && !stopped) {
    conversation.add_answer(result.text, result.tokens);
    ISTHMUS_RETURN_IF_ERROR(kept.park(conversation));
  }
  if (context.json) {
    if (!stopped && !schema.on()) prefixes.save(*session, request.prompt);
    print_json(result_json(*model, o, result, request.sampler, energy, session->head_figures(), prefixes,
                           schema, kept));
  } else {
    if (!result.text.empty() && result.text.back() != '\n') static_cast<void>(write_answer("\n"));
    if (!o.quiet) {
      say("[{}; {}]\n", finish_reason_name(result.reason), figures_line(result.figures, energy));
      if (kept.on() && !stopped) say("[{}]\n", kept.line());
      if (schema.on()) say("[{}]\n", schema.line(result.figures.compose));
    }
    if (!stopped && !schema.on()) prefixes.save(*session, request.prompt);
  }
  if (stopped) return cancelled("stopped by the user");
  if (result.reason == FinishReason::kDeadline)
    return deadline_exceeded("the time limit has passed; the answer above is cut");
  return ok_status();
}

}  // namespace

Command run_command() {
  return {.name = "run",
          .group = Group::kRun,
          .summary = "Answer one prompt",
          .json = true,
          .aliases = {},
          .description =
              "The answer goes to standard output, all else to standard error, so that the command works in "
              "pipes. "
              "Without PROMPT, or with '-', the prompt is read from standard input.\n\n"
              "The prompt is put through the model's chat template; with --raw it is continued as it stands.",
          .setup = [](CLI::App& app) {
            auto o = std::make_shared<RunOptions>();
            add_model_args(app, o->model, true);
            app.add_option("PROMPT", o->prompt, "the prompt; '-' or nothing: standard input");
            app.add_option("-s,--system", o->system, "system message");
            app.add_option(
                "-n,--max-tokens", o->max_tokens,
                "most tokens to generate; 0: read the prompt only (default: until the model stops)");
            app.add_option("--stop", o->stops, "stop at this text, repeatable")->allow_extra_args(false);
            app.add_flag("--raw", o->raw, "no chat template; special tokens in the prompt are recognised");
            app.add_flag("--ignore-eos", o->ignore_eos, "go on when the model wants to stop");
            app.add_flag("--shift", o->shift, "when the context is full, drop the older half and go on");
            app.add_flag("-q,--quiet", o->quiet, "no figures on standard error");
            app.add_option("--logprobs", o->logprobs,
                           "report this many alternatives per token, with --json (default: none)");
            app.add_option("--timeout", o->timeout, "stop after this many seconds (default: never)")
                ->check(CLI::Range(0.001, 1e9));
            add_prefix_args(app, o->prefix);
            add_schema_args(app, o->schema);
            add_session_args(app, o->kept);
            add_lookup_args(app, o->lookup);
            add_sampler_args(app, o->sampler);
            return Action([o, &app](const Context& context) { return run(*o, app, context); });
          }};
}

}  // namespace isthmus::cli
