// isthmus chat: a conversation in the terminal.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "apps/isthmus/figures.h"
#include "apps/isthmus/interrupt.h"
#include "apps/isthmus/line_editor.h"
#include "apps/isthmus/model_args.h"
#include "apps/isthmus/output.h"
#include "base/suggest.h"
#include "engine/chat.h"
#include "engine/generate.h"
#include "os/file.h"

namespace isthmus::cli {
namespace {

struct ChatOptions {
  ModelArgs model;
  SamplerArgs sampler;
  std::string system;
  size_t max_tokens = 0;
  bool stop_when_full = false;
  bool show_figures = false;
};

constexpr const char* kHelp =
    "  /help           this list\n"
    "  /clear          forget the conversation\n"
    "  /system TEXT    set the system message and start over\n"
    "  /undo           take back the last question and its answer\n"
    "  /retry          ask the last question again\n"
    "  /figures        show or hide the figures after each answer\n"
    "  /save FILE      write the conversation as JSON\n"
    "  /exit           leave (also Ctrl-D)\n"
    "Lines between two lines of \"\"\" are one message; a line that ends in \\ goes on. Ctrl-C stops an "
    "answer.\n";

class Chat {
 public:
  Chat(const ChatOptions& options, const LanguageModel& model, Session& session, SamplerParams sampler)
      : o_(options), session_(session), conversation_(model), sampler_(std::move(sampler)) {
    show_figures_ = o_.show_figures;
    restart(o_.system);
  }

  Status loop() {
    LineEditor editor;
    while (true) {
      interrupt().reset();
      const auto line = editor.read_message("> ");
      if (!line) return ok_status();
      if (line->empty()) continue;
      if (line->front() == '/') {
        ISTHMUS_ASSIGN_OR_RETURN(const bool go_on, command(*line));
        if (!go_on) return ok_status();
        continue;
      }
      ISTHMUS_RETURN_IF_ERROR(ask(*line));
    }
  }

 private:
  void restart(const std::string& system) {
    conversation_.clear();
    system_ = system;
    if (!system.empty()) conversation_.messages().push_back({{"role", "system"}, {"content", system}});
  }

  /// One turn. A turn that cannot be answered (template refuses, context full) is taken back and reported;
  /// the conversation goes on.
  Status ask(const std::string& text) {
    conversation_.messages().push_back({{"role", "user"}, {"content", text}});
    conversation_.request().now =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    auto prompt = conversation_.prompt();
    if (!prompt.ok()) return take_back(prompt.status());
    GenerateRequest request;
    request.prompt = std::move(*prompt);
    request.sampler = sampler_;
    ++sampler_.seed;  // the next answer draws anew, and the run stays repeatable
    if (o_.max_tokens > 0) request.max_tokens = o_.max_tokens;
    request.on_full = o_.stop_when_full ? ContextPolicy::kStop : ContextPolicy::kShift;
    request.keep_tokens = 0;
    request.stop.token = interrupt().token();
    request.on_text = [](std::string_view piece) {
      const std::string shown = printable(piece);
      std::fwrite(shown.data(), 1, shown.size(), stdout);
      std::fflush(stdout);
      return true;
    };
    auto result = generate(session_, request);
    if (!result.ok()) return take_back(result.status());
    std::fputs("\n", stdout);
    if (result->reason == FinishReason::kCancelled) fmt::print("[stopped]\n");
    if (result->reason == FinishReason::kContext) fmt::print("[the context is full; /clear starts over]\n");
    if (show_figures_) fmt::print(stderr, "[{}]\n", figures_line(result->figures, std::nullopt));
    conversation_.add_answer(result->text, result->tokens);
    return ok_status();
  }

  Status take_back(const Status& why) {
    conversation_.messages().erase(conversation_.messages().size() - 1);
    fmt::print(stderr, "isthmus: {}\n", why.message());
    return ok_status();
  }

  /// Drops the last question and its answer; returns the question, empty when there is none.
  std::string undo() {
    auto& messages = conversation_.messages();
    std::string question;
    while (!messages.empty() && messages.back()["role"] != "system" && question.empty()) {
      if (messages.back()["role"] == "user") question = messages.back()["content"];
      messages.erase(messages.size() - 1);
    }
    return question;
  }

  Result<bool> command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string verb = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (verb == "/exit" || verb == "/quit" || verb == "/bye") return false;
    if (verb == "/help" || verb == "/?") {
      fmt::print("{}", kHelp);
    } else if (verb == "/clear") {
      restart(system_);
    } else if (verb == "/system") {
      restart(rest);
    } else if (verb == "/undo") {
      if (undo().empty()) fmt::print("nothing to take back\n");
    } else if (verb == "/retry") {
      const std::string question = undo();
      if (question.empty()) {
        fmt::print("nothing to ask again\n");
      } else {
        ISTHMUS_RETURN_IF_ERROR(ask(question));
      }
    } else if (verb == "/figures") {
      show_figures_ = !show_figures_;
    } else if (verb == "/save") {
      save(rest);
    } else {
      static const std::vector<std::string> kVerbs = {"/help",  "/clear",   "/system", "/undo",
                                                      "/retry", "/figures", "/save",   "/exit"};
      fmt::print("no such command: {}{}\n", verb, did_you_mean(verb, kVerbs));
    }
    return true;
  }

  void save(const std::string& path) {
    if (path.empty()) {
      fmt::print("/save needs a file name\n");
      return;
    }
    const std::string text =
        conversation_.messages().dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const Status status = publish_file(real_file_system(), path, std::as_bytes(std::span(text)));
    if (!status.ok()) fmt::print(stderr, "isthmus: {}\n", status.message());
  }

  const ChatOptions& o_;
  Session& session_;
  Conversation conversation_;
  SamplerParams sampler_;
  std::string system_;
  bool show_figures_ = false;
};

Status chat(const ChatOptions& o, const CLI::App& app, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(SamplerParams sampler, sampler_params(app, o.sampler));
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(o.model));
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(o.model, std::move(options), context));
  ISTHMUS_RETURN_IF_ERROR(model->chat_template().status());
  ISTHMUS_RETURN_IF_ERROR(check_sampler_params(sampler, model->config().vocab));
  ISTHMUS_ASSIGN_OR_RETURN(const auto session, Session::create(model));
  fmt::print(stderr, "{} with {} tokens of context. /help lists the commands.\n", o.model.model,
             model->context());
  Chat conversation(o, *model, *session, std::move(sampler));
  return conversation.loop();
}

}  // namespace

Command chat_command() {
  return {.name = "chat",
          .group = Group::kRun,
          .summary = "Hold a conversation in the terminal",
          .json = false,
          .aliases = {},
          .description =
              "Answers stream as they are made; Ctrl-C stops an answer and not the program. /help lists the "
              "commands inside. "
              "When the context is full the older half of it is dropped and the answer goes on; "
              "--stop-when-full ends the answer instead.",
          .setup = [](CLI::App& app) {
            auto o = std::make_shared<ChatOptions>();
            add_model_args(app, o->model, true);
            app.add_option("-s,--system", o->system, "system message");
            app.add_option("-n,--max-tokens", o->max_tokens, "most tokens per answer");
            app.add_flag("--stop-when-full", o->stop_when_full, "end an answer when the context is full");
            app.add_flag("--figures", o->show_figures, "show the figures after each answer");
            add_sampler_args(app, o->sampler);
            return Action([o, &app](const Context& context) { return chat(*o, app, context); });
          }};
}

}  // namespace isthmus::cli
