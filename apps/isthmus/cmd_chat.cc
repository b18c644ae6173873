// isthmus chat: a conversation in the terminal.
#include <fmt/core.h>

#include <memory>
#include <span>

#include "apps/isthmus/chat_turns.h"
#include "apps/isthmus/interrupt.h"
#include "apps/isthmus/line_editor.h"
#include "apps/isthmus/model_args.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/session_args.h"
#include "base/suggest.h"
#include "os/file.h"

namespace isthmus::cli {
namespace {

struct ChatOptions {
  ModelArgs model;
  SamplerArgs sampler;
  LookupArgs lookup;
  PrefixArgs prefix;
  SessionArgs kept;
  TurnOptions turns;
  std::string system;
};

constexpr const char* kHelp =
    "  /help           this list\n"
    "  /clear          forget the conversation\n"
    "  /system TEXT    set the system message and start over; without TEXT there is none\n"
    "  /undo           take back the last question and its answer\n"
    "  /retry          ask the last question again\n"
    "  /figures        show or hide the figures after each answer\n"
    "  /save FILE      write the conversation as JSON; an existing file is not replaced\n"
    "  /exit           leave (also Ctrl-D)\n"
    "Lines between two lines of \"\"\" are one message; a line that ends in \\ goes on in the next. Ctrl-C "
    "stops an answer, or drops what is being typed. A message that begins with // is sent with one /.\n";

enum class Next { kGoOn, kLeave };

/// The commands that begin with a slash.
class SlashCommands {
 public:
  explicit SlashCommands(ChatTurns& turns) : turns_(turns) {}

  Result<Next> run(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string verb = line.substr(0, space);
    const size_t word = line.find_first_not_of(' ', space);
    const std::string rest = word == std::string::npos ? "" : line.substr(word);
    const bool bare = verb != "/system" && verb != "/save";
    if (bare && !rest.empty() && is_known(verb)) {
      say("{} takes nothing after it\n", verb);
      return Next::kGoOn;
    }
    if (verb == "/exit" || verb == "/quit" || verb == "/bye") return Next::kLeave;
    if (verb == "/retry") return retry();
    if (verb == "/help" || verb == "/?") {
      say_text(kHelp);
    } else if (verb == "/clear") {
      turns_.restart();
      say("[the conversation is forgotten]\n");
    } else if (verb == "/system") {
      turns_.restart(rest);
      say("[{}; the conversation starts over]\n", rest.empty() ? "no system message" : "system message set");
    } else if (verb == "/undo") {
      say_text(turns_.undo().empty() ? "nothing to take back\n" : "[the last question is taken back]\n");
    } else if (verb == "/figures") {
      turns_.options().show_figures = !turns_.options().show_figures;
      say("[figures {}]\n", turns_.options().show_figures ? "on" : "off");
    } else if (verb == "/save") {
      save(rest);
    } else {
      say("no such command: {}{}; /help lists them\n", printable(verb), did_you_mean(verb, known()));
    }
    return Next::kGoOn;
  }

 private:
  static const std::vector<std::string>& known() {
    static const std::vector<std::string> kVerbs = {"/help",  "/clear",   "/system", "/undo",
                                                    "/retry", "/figures", "/save",   "/exit"};
    return kVerbs;
  }

  static bool is_known(const std::string& verb) {
    return std::find(known().begin(), known().end(), verb) != known().end();
  }

  Result<Next> retry() {
    const std::string question = turns_.undo();
    if (question.empty()) {
      say("nothing to ask again\n");
    } else {
      ISTHMUS_RETURN_IF_ERROR(turns_.ask(question));
    }
    return Next::kGoOn;
  }

  void save(const std::string& path) {
    if (path.empty()) {
      say("/save needs a file name\n");
      return;
    }
    if (real_file_system().exists(path)) {
      say("isthmus: '{}' exists already\n", printable(path));
      return;
    }
    const std::string text =
        turns_.messages().dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const Status status = publish_file(real_file_system(), path, std::as_bytes(std::span(text)));
    if (status.ok()) {
      say("[saved in {}]\n", printable(path));
    } else {
      say("isthmus: {}\n", printable(status.message()));
    }
  }

  ChatTurns& turns_;
};

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\n\r") == std::string::npos; }

Status converse(ChatTurns& turns) {
  LineEditor editor;
  SlashCommands commands(turns);
  while (!terminated()) {
    interrupt().reset();
    ISTHMUS_ASSIGN_OR_RETURN(Typed typed, editor.read_message("> "));
    if (typed.kind == Typed::Kind::kEnd) break;
    if (typed.kind == Typed::Kind::kInterrupted) {
      if (typed.text.empty()) say("(Ctrl-D or /exit leaves)\n");
      continue;
    }
    if (is_blank(typed.text)) continue;
    const bool escaped = typed.text.starts_with("//");
    const bool command = typed.text.front() == '/' && !escaped;
    if (command && typed.text.find('\n') == std::string::npos) {
      ISTHMUS_ASSIGN_OR_RETURN(const Next next, commands.run(typed.text));
      if (next == Next::kLeave) break;
    } else {
      ISTHMUS_RETURN_IF_ERROR(turns.ask(escaped ? typed.text.substr(1) : typed.text));
    }
  }
  return terminated() ? cancelled("terminated") : ok_status();
}

/// Goes on with a kept conversation; each turn is put away when it is answered.
Status keep_turns(SessionUse& kept, const std::string& system, ChatTurns& turns) {
  ISTHMUS_RETURN_IF_ERROR(kept.restore(turns.conversation()));
  const size_t messages = kept.messages();
  if (messages > 0 && !system.empty()) {
    return invalid_argument(
        "--system comes with the first message of a session, and this one has some already");
  }
  if (messages > 0) say("[{} messages from before]\n", messages);
  turns.options().after_turn = [&kept](Conversation& conversation) -> Status {
    ISTHMUS_RETURN_IF_ERROR(kept.park(conversation));
    return kept.resume({});
  };
  return ok_status();
}

Status chat(const ChatOptions& o, const CLI::App& app, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(SamplerParams sampler, sampler_params(app, o.sampler));
  TurnOptions turn_options = o.turns;
  ISTHMUS_ASSIGN_OR_RETURN(turn_options.draft_tokens, draft_tokens(app, o.lookup));
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(o.model));
  options.draft_tokens = turn_options.draft_tokens;
  ISTHMUS_ASSIGN_OR_RETURN(PrefixCache prefixes, PrefixCache::open(app, o.prefix, o.model, context));
  turn_options.prefixes = &prefixes;
  ISTHMUS_ASSIGN_OR_RETURN(SessionUse kept, SessionUse::open(app, o.kept, o.model, context, options));
  if (kept.on() && (o.prefix.on || o.turns.shift)) {
    return invalid_argument("--session keeps a conversation as it is: no --shift or --prefix-cache with it");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(o.model, std::move(options), context));
  ISTHMUS_RETURN_IF_ERROR(model->chat_template().status());
  ISTHMUS_RETURN_IF_ERROR(check_sampler_params(sampler, model->config().vocab));
  std::unique_ptr<Session> own;
  if (kept.on()) {
    ISTHMUS_RETURN_IF_ERROR(kept.activate(model, {}));
  } else {
    ISTHMUS_ASSIGN_OR_RETURN(own, Session::create(model));
  }
  say("{} with {} tokens of context. /help lists the commands.\n", printable(o.model.model),
      model->context());
  ChatTurns turns(kept.on() ? kept.session() : *own, std::move(sampler), turn_options);
  turns.restart(o.system);
  if (kept.on()) ISTHMUS_RETURN_IF_ERROR(keep_turns(kept, o.system, turns));
  return converse(turns);
}

}  // namespace

Command chat_command() {
  return {
      .name = "chat",
      .group = Group::kRun,
      .summary = "Hold a conversation in the terminal",
      .json = false,
      .aliases = {},
      .description =
          "Answers stream as they are made; Ctrl-C stops an answer and not the program. /help lists the "
          "commands inside. When the context is full the answer ends and says so; with --shift the oldest "
          "turns are left out instead.",
      .setup = [](CLI::App& app) {
        auto o = std::make_shared<ChatOptions>();
        add_model_args(app, o->model, true);
        app.add_option("-s,--system", o->system, "system message");
        app.add_option("-n,--max-tokens", o->turns.max_tokens,
                       "most tokens per answer (default: until the model stops)")
            ->check(CLI::PositiveNumber);
        app.add_flag("--shift", o->turns.shift, "when the context is full, leave out the oldest turns");
        app.add_flag("--figures", o->turns.show_figures, "show the figures after each answer");
        add_prefix_args(app, o->prefix);
        add_session_args(app, o->kept);
        add_lookup_args(app, o->lookup);
        add_sampler_args(app, o->sampler);
        return Action([o, &app](const Context& context) { return chat(*o, app, context); });
      }};
}

}  // namespace isthmus::cli
