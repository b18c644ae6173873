// isthmus session: the conversations that are kept: what is there, take one away, write one to a file, take a
// file in.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <ctime>
#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "base/digest.h"
#include "base/suggest.h"
#include "os/file.h"
#include "store/kv_tier.h"
#include "store/session_files.h"

namespace isthmus::cli {
namespace {

struct SessionCommandArgs {
  std::string verb;
  std::vector<std::string> items;
};

std::string session_time(int64_t ns) {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time_t{ns / 1'000'000'000}));
}

Result<std::unique_ptr<SessionFiles>> open_sessions() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string folder, standard_session_folder());
  return SessionFiles::open(folder);
}

size_t message_count(const SessionText& text) {
  const auto messages = nlohmann::ordered_json::parse(text.messages, nullptr, false);
  return messages.is_array() ? messages.size() : 0;
}

Status list_sessions(const SessionCommandArgs& args, const Context& context) {
  if (!args.items.empty()) return invalid_argument("session list takes nothing after it");
  ISTHMUS_ASSIGN_OR_RETURN(const auto files, open_sessions());
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->names());
  auto list = nlohmann::ordered_json::array();
  Table table({"name", "model", "messages", "tokens", "last used"});
  table.align_right({2, 3});
  for (const std::string& name : names) {
    const auto text = files->load(name);
    if (!text.ok()) {
      say("isthmus session: {}\n", printable(text.status().message()));
      continue;
    }
    list.push_back({{"name", name},
                    {"model", text->label},
                    {"messages", message_count(*text)},
                    {"tokens", text->tokens.size()},
                    {"created", session_time(text->created_ns)},
                    {"last_used", session_time(text->used_ns)}});
    table.add({name, printable(text->label), std::to_string(message_count(*text)),
               std::to_string(text->tokens.size()), session_time(text->used_ns)});
  }
  if (context.json) {
    print_json({{"sessions", list}});
  } else if (list.empty()) {
    fmt::print("no sessions\n");
  } else {
    table.print();
  }
  return ok_status();
}

Result<std::string> one_name(const SessionCommandArgs& args) {
  if (args.items.size() != 1) return invalid_argument("session " + args.verb + " takes one name");
  return args.items.front();
}

Status show_session(const SessionCommandArgs& args, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string name, one_name(args));
  ISTHMUS_ASSIGN_OR_RETURN(const auto files, open_sessions());
  ISTHMUS_ASSIGN_OR_RETURN(const SessionText text, files->load(name));
  const auto messages =
      nlohmann::ordered_json::parse(text.messages.empty() ? "[]" : text.messages, nullptr, false);
  if (context.json) {
    auto chunks = nlohmann::ordered_json::array();
    for (const SessionChunk& chunk : text.chunks) chunks.push_back(chunk.bits);
    print_json({{"name", text.name},
                {"model", text.label},
                {"model_sha256", text.model},
                {"created", session_time(text.created_ns)},
                {"last_used", session_time(text.used_ns)},
                {"tokens", text.tokens.size()},
                {"chunk_bits", chunks},
                {"messages", messages}});
    return ok_status();
  }
  fmt::print("{}: {}, {} tokens, last used {}\n", text.name, printable(text.label), text.tokens.size(),
             session_time(text.used_ns));
  for (const auto& message : messages) {
    fmt::print("\n{}:\n{}\n", printable(message["role"].get<std::string>()),
               printable(message["content"].get<std::string>()));
  }
  return ok_status();
}

/// The records of a session's KV.
Status drop_records(const SessionText& text) {
  const auto identity = digest_from_hex(text.kv);
  if (!identity) return ok_status();
  ISTHMUS_ASSIGN_OR_RETURN(const std::string folder, standard_kv_folder());
  ISTHMUS_ASSIGN_OR_RETURN(const auto tier, KvTier::open(folder));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<KvIndexRow> rows, tier->list());
  std::vector<Digest> names;
  for (const KvIndexRow& row : rows) {
    if (row.identity == *identity) names.push_back(row.name);
  }
  return tier->drop(names).status();
}

Status drop_sessions(const SessionCommandArgs& args, const Context& context) {
  if (args.items.empty()) return invalid_argument("session drop takes one or more names");
  ISTHMUS_ASSIGN_OR_RETURN(const auto files, open_sessions());
  for (const std::string& name : args.items) {
    const auto text = files->load(name);
    if (text.status().code() == Code::kNotFound) return text.status();
    // A text that cannot be read does not say what its records are; they go when there are others to keep.
    if (text.ok()) ISTHMUS_RETURN_IF_ERROR(drop_records(*text));
    ISTHMUS_RETURN_IF_ERROR(files->remove(name));
    if (!context.json) fmt::print("{} is gone\n", name);
  }
  if (context.json) print_json({{"dropped", args.items}});
  return ok_status();
}

Status export_session(const SessionCommandArgs& args, const Context& context) {
  if (args.items.size() != 2) return invalid_argument("session export takes a name and a file");
  ISTHMUS_ASSIGN_OR_RETURN(const auto files, open_sessions());
  ISTHMUS_ASSIGN_OR_RETURN(const SessionText text, files->load(args.items[0]));
  const std::string& path = args.items[1];
  if (real_file_system().exists(path)) return failed_precondition("'" + path + "' exists already");
  const std::string json = write_session(text);
  ISTHMUS_RETURN_IF_ERROR(publish_file(real_file_system(), path, std::as_bytes(std::span(json))));
  if (context.json) print_json({{"session", text.name}, {"file", path}, {"bytes", json.size()}});
  return ok_status();
}

Status import_session(const SessionCommandArgs& args, const Context& context) {
  if (args.items.empty() || args.items.size() > 2)
    return invalid_argument("session import takes a file and, if it is to be another, a name");
  ISTHMUS_ASSIGN_OR_RETURN(const std::string json, read_input(args.items[0]));
  auto text = parse_session(json);
  if (!text.ok()) return text.status().with_context(args.items[0]);
  if (args.items.size() == 2) text->name = args.items[1];
  if (!is_session_name(text->name))
    return invalid_argument("'" + printable(text->name) + "' is no name of a session");
  ISTHMUS_ASSIGN_OR_RETURN(const auto files, open_sessions());
  const auto there = files->load(text->name);
  if (there.ok() || there.status().code() != Code::kNotFound) {
    return failed_precondition("there is a session '" + text->name +
                               "' already; drop it, or give another name");
  }
  ISTHMUS_RETURN_IF_ERROR(files->save(*text));
  if (context.json) print_json({{"session", text->name}, {"tokens", text->tokens.size()}});
  return ok_status();
}

Status session(const SessionCommandArgs& args, const Context& context) {
  static const std::vector<std::string> kSessionVerbs = {"list", "show", "drop", "export", "import"};
  if (args.verb == "list") return list_sessions(args, context);
  if (args.verb == "show") return show_session(args, context);
  if (args.verb == "drop") return drop_sessions(args, context);
  if (args.verb == "export") return export_session(args, context);
  if (args.verb == "import") return import_session(args, context);
  return invalid_argument("no such thing to do with sessions: '" + printable(args.verb) +
                          "'; known are list, show, drop, export and import" +
                          did_you_mean(args.verb, kSessionVerbs));
}

}  // namespace

Command session_command() {
  return {.name = "session",
          .group = Group::kModels,
          .summary = "List, show, drop, export and import kept conversations",
          .json = true,
          .aliases = {},
          .description =
              "list: all of them.\n\n"
              "show NAME: what was said.\n\n"
              "drop NAME…: forgets them, and their KV.\n\n"
              "export NAME FILE, import FILE [NAME]: the text of one as a file (docs/formats/session.md); "
              "its KV is "
              "computed anew where it is imported.",
          .setup = [](CLI::App& app) {
            auto args = std::make_shared<SessionCommandArgs>();
            app.add_option("VERB", args->verb, "list, show, drop, export or import")->required();
            app.add_option("ITEM", args->items, "names and files");
            return Action([args](const Context& context) { return session(*args, context); });
          }};
}

}  // namespace isthmus::cli
