// isthmus show: what a model is, what is in its file, and the memory it needs.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/model_facts.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"
#include "engine/language_model.h"

namespace isthmus::cli {
namespace {

struct ShowFlags {
  std::string model;
  StoreFlags store;
  size_t context = 0;
  bool tensors = false;
  bool metadata = false;
  bool chat_template = false;
};

/// Everything that the parts of the page are made from.
struct Page {
  ResolvedModel model;
  const GgufFile& file;
  ModelFacts facts;
  Licence licence;  // of the catalogue; empty id when the file is not from the store
  Result<ModelPlan>
      plan;  // its error is shown in its place: a model that we cannot run can still be looked at
};

/// What the store knows about the licence of a pulled model; nothing about a file that was given as a path.
Licence stored_licence(const ResolvedModel& model, const StoreFlags& flags) {
  if (model.name.empty()) return {};
  const Result<ModelStore> store = open_store(flags);
  if (!store.ok()) return {};
  const Result<StoredModel> stored = store->find(model.name);
  return stored.ok() ? stored->manifest.licence : Licence{};
}

std::string licence_text(const Page& page) {
  if (!page.licence.name.empty()) {
    return page.licence.url.empty() ? page.licence.name
                                    : fmt::format("{} ({})", page.licence.name, page.licence.url);
  }
  return page.facts.licence.empty() ? "not stated in the file" : page.facts.licence;
}

nlohmann::ordered_json memory_json(const Page& page) {
  if (!page.plan.ok()) return error_json(page.plan.status());
  const ModelPlan& plan = *page.plan;
  return {{"context", plan.context}, {"threads", plan.threads},  {"weights", plan.memory.weights},
          {"kv", plan.memory.kv},    {"work", plan.memory.work}, {"text", plan.text},
          {"process", plan.process}, {"total", plan.total()}};
}

Result<nlohmann::ordered_json> page_json(const Page& page, const ShowFlags& options) {
  const ModelFacts& facts = page.facts;
  nlohmann::ordered_json out = {{"name", page.model.name.empty() ? facts.name : page.model.name},
                                {"path", page.model.path},
                                {"sha256", page.model.sha256},
                                {"bytes", page.file.file_bytes()},
                                {"format", fmt::format("gguf v{}", page.file.version())},
                                {"parts", page.file.paths().size()},
                                {"architecture", facts.architecture},
                                {"weights", facts.weights},
                                {"context", facts.context},
                                {"layers", facts.layers},
                                {"width", facts.width},
                                {"heads", facts.heads},
                                {"kv_heads", facts.kv_heads},
                                {"feed_forward", facts.feed_forward},
                                {"vocabulary", facts.vocabulary},
                                {"tokenizer", facts.tokenizer},
                                {"chat_template", !facts.chat_template.empty()},
                                {"licence", licence_text(page)},
                                {"memory", memory_json(page)}};
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (const TypeShare& share : facts.types) {
    types.push_back({{"type", share.type},
                     {"tensors", share.tensors},
                     {"weights", share.weights},
                     {"bytes", share.bytes}});
  }
  out["types"] = types;
  if (options.chat_template) out["chat_template_text"] = facts.chat_template;
  if (options.metadata) {
    nlohmann::ordered_json metadata = nlohmann::ordered_json::object();
    for (const std::string& key : page.file.keys()) {
      ISTHMUS_ASSIGN_OR_RETURN(metadata[key], value_json(page.file, key));
    }
    out["metadata"] = metadata;
  }
  if (options.tensors) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const GgufTensor& tensor : page.file.tensors()) {
      tensors.push_back(
          {{"name", tensor.name},
           {"type", std::string(dtype_info(tensor.type).name)},
           {"shape", std::vector<uint64_t>(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims)},
           {"bytes", tensor.data.size()}});
    }
    out["tensors"] = tensors;
  }
  return out;
}

void print_facts(const Page& page) {
  const ModelFacts& facts = page.facts;
  const auto line = [](std::string_view label, const std::string& text) {
    fmt::print("{:<14}{}\n", label, printable(text));
  };
  line("model", page.model.name.empty() ? facts.name : page.model.name);
  line("file",
       fmt::format("{} ({}{})", page.model.path, human_bytes(page.file.file_bytes()),
                   page.file.paths().size() > 1 ? fmt::format(", {} parts", page.file.paths().size()) : ""));
  if (!page.model.sha256.empty()) line("sha256", page.model.sha256);
  line("architecture", fmt::format("{}, {} weights", facts.architecture, human_count(facts.weights)));
  line("shape", fmt::format("{} layers, width {}, feed-forward {}, heads {}, KV heads {}", facts.layers,
                            facts.width, facts.feed_forward, facts.heads, facts.kv_heads));
  line("context", facts.context == 0 ? "not stated" : fmt::format("{} tokens", facts.context));
  line("tokenizer", fmt::format("{}, {} tokens", facts.tokenizer, facts.vocabulary));
  line("chat template",
       facts.chat_template.empty() ? "none" : fmt::format("{} bytes", facts.chat_template.size()));
  line("licence", licence_text(page));
  if (page.plan.ok()) {
    const ModelPlan& plan = *page.plan;
    line("memory",
         fmt::format("{} for a context of {} tokens: weights {}, KV {}, work {}, text {}, program {}",
                     human_bytes(plan.total()), plan.context, human_bytes(plan.memory.weights),
                     human_bytes(plan.memory.kv), human_bytes(plan.memory.work), human_bytes(plan.text),
                     human_bytes(plan.process)));
  } else {
    line("memory", "cannot be planned: " + page.plan.status().message());
  }
}

void print_types(const Page& page) {
  Table table({"type", "tensors", "weights", "bytes"});
  table.align_right({1, 2, 3});
  for (const TypeShare& share : page.facts.types) {
    table.add(
        {share.type, std::to_string(share.tensors), human_count(share.weights), human_bytes(share.bytes)});
  }
  fmt::print("\n");
  table.print();
}

Status print_details(const Page& page, const ShowFlags& options) {
  if (options.metadata) {
    Table table({"key", "value"});
    for (const std::string& key : page.file.keys()) {
      ISTHMUS_ASSIGN_OR_RETURN(const std::string value, value_text(page.file, key));
      table.add({printable(key), printable(value)});
    }
    fmt::print("\n");
    table.print();
  }
  if (options.tensors) {
    Table table({"tensor", "type", "shape", "bytes"});
    table.align_right({2, 3});
    for (const GgufTensor& tensor : page.file.tensors()) {
      table.add({printable(tensor.name), std::string(dtype_info(tensor.type).name), shape_text(tensor),
                 human_bytes(tensor.data.size())});
    }
    fmt::print("\n");
    table.print();
  }
  if (options.chat_template) fmt::print("\n{}\n", printable(page.facts.chat_template));
  return ok_status();
}

Status show(const Context& context, const ShowFlags& options) {
  ModelOptions model_options;
  model_options.process_bytes = process_bytes();  // before this command holds the file
  ISTHMUS_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(options.model, options.store));
  ISTHMUS_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(model.path));
  ISTHMUS_ASSIGN_OR_RETURN(const ModelFacts facts, read_facts(file));
  model_options.context = options.context;
  const Page page{model, file, facts, stored_licence(model, options.store),
                  LanguageModel::plan(model.path, model_options)};
  if (context.json) {
    ISTHMUS_ASSIGN_OR_RETURN(const nlohmann::ordered_json document, page_json(page, options));
    print_json(document);
    return ok_status();
  }
  print_facts(page);
  print_types(page);
  return print_details(page, options);
}

}  // namespace

Command show_command() {
  return {.name = "show",
          .group = Group::kModels,
          .summary = "Show what a model is and the memory it needs",
          .json = true,
          .aliases = {"info"},
          .description =
              "Reads the file's header alone. The memory is what loading would take: packed weights, KV "
              "cache for\n"
              "the context, buffers of a step, tokenizer.",
          .setup = [](CLI::App& app) {
            auto options = std::make_shared<ShowFlags>();
            app.add_option("MODEL", options->model, "Name of a model or path of a GGUF file")->required();
            app.add_option("-c,--ctx", options->context,
                           "Context to plan memory for, in tokens (default: what 'run' would use)")
                ->type_name("N");
            app.add_flag("--tensors", options->tensors, "List every tensor");
            app.add_flag("--metadata", options->metadata, "List every key of the file");
            app.add_flag("--template", options->chat_template, "Print the chat template");
            add_store_flags(app, options->store);
            return Action([options](const Context& context) { return show(context, *options); });
          }};
}

}  // namespace isthmus::cli
