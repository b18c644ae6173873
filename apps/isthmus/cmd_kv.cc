// isthmus kv: the stored KV of prompts: what is there, take it away, write it to a file, take a file in.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <set>

#include "apps/isthmus/kv_files.h"
#include "apps/isthmus/output.h"
#include "base/suggest.h"

namespace isthmus::cli {
namespace {

constexpr size_t kShownDigits = 12;
constexpr size_t kLeastDigits = 4;

/// The records of a tier as a forest.
struct StoredPrefixes {
  std::vector<KvIndexRow> rows;  // those used last first
  std::map<Digest, const KvIndexRow*> by_name;
  std::map<Digest, std::set<Digest>> children;

  explicit StoredPrefixes(std::vector<KvIndexRow> all) : rows(std::move(all)) {
    for (const KvIndexRow& row : rows) {
      by_name[row.name] = &row;
      if (row.parent_name) children[*row.parent_name].insert(row.name);
    }
  }
  StoredPrefixes(const StoredPrefixes&) = delete;
  StoredPrefixes& operator=(const StoredPrefixes&) = delete;

  const KvIndexRow* parent(const KvIndexRow& row) const {
    const auto found = row.parent_name ? by_name.find(*row.parent_name) : by_name.end();
    return found == by_name.end() ? nullptr : found->second;
  }
  bool is_leaf(const KvIndexRow& row) const { return children.count(row.name) == 0; }
  /// With all records on which it stands.
  uint64_t chain_bytes(const KvIndexRow& row) const {
    uint64_t sum = 0;
    for (const KvIndexRow* at = &row; at != nullptr; at = parent(*at)) sum += at->bytes;
    return sum;
  }
};

std::string time_text(int64_t ns) {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time_t{ns / 1'000'000'000}));
}

Status list_kv(const KvArgs& args, const Context& context) {
  if (!args.items.empty()) return invalid_argument("kv list takes nothing after it");
  ISTHMUS_ASSIGN_OR_RETURN(const auto tier, open_kv_tier(args));
  ISTHMUS_ASSIGN_OR_RETURN(auto rows, tier->list());
  const StoredPrefixes stored(std::move(rows));
  uint64_t total = 0;
  for (const KvIndexRow& row : stored.rows) total += row.bytes;
  auto list = nlohmann::ordered_json::array();
  Table table({"id", "model", "tokens", "size", "last used"});
  table.align_right({2, 3});
  for (const KvIndexRow& row : stored.rows) {
    if (!stored.is_leaf(row)) continue;
    const std::string id = hex_of(row.name);
    const size_t tokens = size_t{row.first_token} + row.tokens;
    const uint64_t bytes = stored.chain_bytes(row);
    list.push_back({{"id", id},
                    {"model", row.label},
                    {"tokens", tokens},
                    {"bytes", bytes},
                    {"last_used", time_text(row.used_ns)}});
    table.add({id.substr(0, kShownDigits), printable(row.label), std::to_string(tokens), human_bytes(bytes),
               time_text(row.used_ns)});
  }
  if (context.json) {
    print_json(
        {{"folder", tier->path()}, {"records", stored.rows.size()}, {"bytes", total}, {"prefixes", list}});
    return ok_status();
  }
  if (!list.empty()) table.print();
  fmt::print("{} prefixes, {} in {}\n", list.size(), human_bytes(total), printable(tier->path()));
  return ok_status();
}

Result<const KvIndexRow*> find_prefix(const StoredPrefixes& stored, const std::string& id) {
  const KvIndexRow* found = nullptr;
  if (id.size() < kLeastDigits) {
    return invalid_argument(
        fmt::format("'{}': give at least {} digits of an id", printable(id), kLeastDigits));
  }
  for (const KvIndexRow& row : stored.rows) {
    if (!hex_of(row.name).starts_with(id)) continue;
    if (found != nullptr) return invalid_argument("'" + printable(id) + "' begins more than one id");
    found = &row;
  }
  if (found == nullptr)
    return not_found("no stored prefix '" + printable(id) + "'; isthmus kv list shows all");
  return found;
}

/// A record, what stands on it, and what was there for it alone.
void mark_for_drop(const StoredPrefixes& stored, const KvIndexRow& row, std::set<Digest>& out) {
  std::vector<Digest> open = {row.name};
  while (!open.empty()) {
    const Digest name = open.back();
    open.pop_back();
    if (!out.insert(name).second) continue;
    const auto found = stored.children.find(name);
    if (found != stored.children.end()) open.insert(open.end(), found->second.begin(), found->second.end());
  }
  for (const KvIndexRow* at = stored.parent(row); at != nullptr; at = stored.parent(*at)) {
    const auto& children = stored.children.at(at->name);
    const bool needed = std::any_of(children.begin(), children.end(),
                                    [&](const Digest& child) { return out.count(child) == 0; });
    if (needed) return;
    out.insert(at->name);
  }
}

Status drop_kv(const KvArgs& args, const Context& context) {
  if (args.items.empty() != args.all) return invalid_argument("kv drop takes ids, or --all");
  ISTHMUS_ASSIGN_OR_RETURN(const auto tier, open_kv_tier(args));
  ISTHMUS_ASSIGN_OR_RETURN(auto rows, tier->list());
  const StoredPrefixes stored(std::move(rows));
  std::set<Digest> names;
  // All are looked up before the first is dropped.
  for (const std::string& id : args.items) {
    ISTHMUS_ASSIGN_OR_RETURN(const KvIndexRow* row, find_prefix(stored, id));
    mark_for_drop(stored, *row, names);
  }
  if (args.all) {
    for (const KvIndexRow& row : stored.rows) names.insert(row.name);
  }
  const std::vector<Digest> list(names.begin(), names.end());
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t freed, tier->drop(list));
  if (context.json) {
    print_json({{"records", list.size()}, {"freed_bytes", freed}});
  } else {
    fmt::print("{} records dropped, {} freed\n", list.size(), human_bytes(freed));
  }
  return ok_status();
}

Status kv(const KvArgs& args, const Context& context) {
  static const std::vector<std::string> kActions = {"list", "drop", "export", "import"};
  if (args.action == "list") return list_kv(args, context);
  if (args.action == "drop") return drop_kv(args, context);
  if (args.action == "export") return export_kv(args, context);
  if (args.action == "import") return import_kv(args, context);
  return invalid_argument("no such action: '" + printable(args.action) +
                          "'; known are list, drop, export and import" + did_you_mean(args.action, kActions));
}

}  // namespace

Command kv_command() {
  return {
      .name = "kv",
      .group = Group::kModels,
      .summary = "List, drop, export and import the stored KV of prompts",
      .json = true,
      .aliases = {},
      .description =
          "list: the prompts whose KV is on disk (run and chat with --prefix-cache keep it there).\n\n"
          "drop ID…: removes prefixes, by the first digits of their ids, with what stands on them.\n\n"
          "export MODEL --prompt-file FILE -o OUT: reads a prompt and writes its KV to a file. The text is a "
          "user's message; with --system a system message, with --raw plain text.\n\n"
          "import MODEL FILE: takes such a file in, so that prompts that begin with its text need not be "
          "read. "
          "It is refused whole when it is damaged or was made by another model.",
      .setup = [](CLI::App& app) {
        auto args = std::make_shared<KvArgs>();
        app.add_option("ACTION", args->action, "list, drop, export or import")->required();
        app.add_option("ITEM", args->items, "drop: ids; export: a model; import: a model and a file");
        app.add_option("--prompt-file", args->prompt_file, "export: the text ('-': standard input)")
            ->type_name("FILE");
        app.add_option("-o,--output", args->out, "export: the KV file to write")->type_name("FILE");
        app.add_flag("--system", args->system, "export: the text is a system message");
        app.add_flag("--raw", args->raw,
                     "export: no chat template; special tokens in the text are recognised");
        app.add_flag("--all", args->all, "drop: everything");
        app.add_option("--size", args->size, "import: most bytes of all stored KV; the oldest goes")
            ->type_name("SIZE")
            ->capture_default_str();
        add_model_flags(app, args->model, true);
        return Action([args](const Context& context) { return kv(*args, context); });
      }};
}

}  // namespace isthmus::cli
