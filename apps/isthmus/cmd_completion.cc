// isthmus completion: prints a shell's completion script.
#include <fmt/core.h>

#include <memory>
#include <span>

#include "apps/isthmus/command.h"
#include "apps/isthmus/completion.h"
#include "os/file.h"

namespace isthmus::cli {
namespace {

struct CompletionFlags {
  std::string shell;
  std::string output;
};

Status write_completion(const Context& context, const CompletionFlags& options) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string script,
                           completion_script(describe(context.root), options.shell));
  if (options.output.empty()) {
    fmt::print("{}", script);
    return ok_status();
  }
  return publish_file(real_file_system(), options.output, std::as_bytes(std::span(script)));
}

}  // namespace

Command completion_command() {
  return {.name = "completion",
          .group = Group::kProgram,
          .summary = "Print the completion script of a shell",
          .json = false,
          .aliases = {},
          .description =
              "For this session: eval \"$(isthmus completion bash)\", the same for zsh, or\n"
              "isthmus completion fish | source. `make install` installs all three.",
          .setup = [](CLI::App& app) {
            auto options = std::make_shared<CompletionFlags>();
            app.add_option("SHELL", options->shell, "bash, zsh or fish")->required();
            app.add_option("--output", options->output, "File to write instead of standard output")
                ->type_name("FILE");
            return Action([options](const Context& context) { return write_completion(context, *options); });
          }};
}

}  // namespace isthmus::cli
