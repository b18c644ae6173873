#include "apps/isthmus/pull_flow.h"

#include <fmt/core.h>

#include <utility>

#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "apps/isthmus/version.h"
#include "os/terminal.h"

namespace isthmus::cli {
namespace {

void show_licence(const Licence& licence, ProgressBar& bar) {
  bar.say(fmt::format("Licence: {}{}{}", printable(licence.name), licence.url.empty() ? "" : ", ",
                      printable(licence.url)));
  if (!licence.terms.empty()) bar.say(printable(licence.terms));
}

bool ask_on_terminal(const Licence& licence) {
  if (!os::is_terminal(os::Stream::kInput) || !os::is_terminal(os::Stream::kError)) return false;
  say("Do you accept the {}? [y/N] ", printable(licence.name));
  LineReader reader;
  const auto answer = reader.next();
  return answer.ok() && *answer && (**answer == "y" || **answer == "Y" || **answer == "yes");
}

std::string progress_label(const PullProgress& progress) {
  std::string label(phase_name(progress.phase));
  if (progress.parts > 1) label += fmt::format(" part {} of {}", progress.part, progress.parts);
  return label;
}

}  // namespace

Result<PullOutcome> pull_showing_progress(const std::string& reference, const StoreFlags& flags,
                                          PullOptions options, bool quiet, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(ModelStore store, open_store(flags));
  ISTHMUS_ASSIGN_OR_RETURN(const Catalogue catalogue, load_catalogue());
  ProgressBar bar(quiet);
  options.stop.token = context.stop;
  options.download.http.user_agent = "isthmus/" ISTHMUS_VERSION;
  options.show_licence = [&](const Licence& licence) { show_licence(licence, bar); };
  options.ask_licence = ask_on_terminal;
  options.notice = [&](const std::string& sentence) { bar.say(printable(sentence)); };
  options.progress = [&](const PullProgress& progress) {
    bar.show(progress_label(progress), progress.done, progress.total);
  };
  return pull_model(store, catalogue, reference, options);
}

}  // namespace isthmus::cli
