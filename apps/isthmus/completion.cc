#include "apps/isthmus/completion.h"

#include <fmt/core.h>

#include "base/suggest.h"

namespace isthmus::cli {
namespace {

/// In single quotes for a POSIX shell and for fish.
std::string quoted(const std::string& text, bool fish) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += fish ? "\\'" : "'\\''";
    } else if (c == '\\' && fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string all_flags(const CommandDoc& doc) {
  std::string out;
  for (const OptionDoc& option : doc.options) {
    for (const std::string& flag : option.flags) out += (out.empty() ? "" : " ") + flag;
  }
  return out;
}

std::string verbs(const CommandDoc& doc) {
  std::string out;
  for (const CommandDoc& command : doc.commands) out += (out.empty() ? "" : " ") + command.name;
  return out;
}

/// Cases of "VERB SECOND-WORD": nested commands first, then the verb with any second word.
std::string bash_cases(const CommandDoc& doc) {
  std::string out;
  for (const CommandDoc& command : doc.commands) {
    for (const CommandDoc& nested : command.commands) {
      out += fmt::format("    '{} {}') words={} ;;\n", command.name, nested.name,
                         quoted(all_flags(nested) + " " + all_flags(command), false));
    }
    out += fmt::format("    '{} '*) words={} ;;\n", command.name,
                       quoted(verbs(command) + " " + all_flags(command), false));
  }
  return out;
}

std::string bash(const CommandDoc& root) {
  return fmt::format(R"(# bash completion for isthmus
_isthmus() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} words=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W {} -- "$cur")
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{}  esac
  if [ "${{cur#-}}" != "$cur" ] || [ "$COMP_CWORD" -eq 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  fi
  [ "${{#COMPREPLY[@]}}" -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}}
complete -o filenames -F _isthmus isthmus
)",
                     quoted(verbs(root) + " " + all_flags(root), false), bash_cases(root));
}

std::string zsh_options(const CommandDoc& doc, const std::string& indent) {
  std::string out;
  for (const OptionDoc& option : doc.options) {
    std::string text;
    for (const char c : option.text) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') text += '\\';
      text += c;
    }
    for (const std::string& flag : option.flags) {
      const std::string value = option.value.empty() ? "" : ":" + option.value + ":_files";
      out += indent + quoted(fmt::format("{}[{}]{}", flag, text, value), false) + " \\\n";
    }
  }
  return out;
}

std::string zsh(const CommandDoc& root) {
  std::string list;
  std::string cases;
  for (const CommandDoc& command : root.commands) {
    list += "    " + quoted(command.name + ":" + command.summary, false) + "\n";
    cases += fmt::format("    {})\n      _arguments \\\n{}", command.name, zsh_options(command, "        "));
    for (const CommandDoc& nested : command.commands) cases += zsh_options(nested, "        ");
    if (command.commands.empty()) {
      cases += "        '*:argument:_files' ;;\n";
    } else {
      cases += fmt::format("        {} '*:argument:_files' ;;\n",
                           quoted(fmt::format("1:command:({})", verbs(command)), false));
    }
  }
  return fmt::format(R"(#compdef isthmus
_isthmus() {{
  local -a verbs
  verbs=(
{}  )
  if (( CURRENT == 2 )); then
    _describe 'command' verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{}  esac
}}
_isthmus "$@"
)",
                     list, cases);
}

std::string fish_options(const CommandDoc& doc, const std::string& condition) {
  std::string out;
  for (const OptionDoc& option : doc.options) {
    std::string line = "complete -c isthmus -n " + quoted(condition, true);
    for (const std::string& flag : option.flags) {
      line += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
    }
    if (!option.value.empty()) line += " -r";
    out += line + " -d " + quoted(option.text, true) + "\n";
  }
  return out;
}

std::string fish(const CommandDoc& root) {
  std::string out = "# fish completion for isthmus\n";
  for (const CommandDoc& command : root.commands) {
    out += fmt::format("complete -c isthmus -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                       quoted(command.summary, true));
    const std::string condition = "__fish_seen_subcommand_from " + command.name;
    for (const CommandDoc& nested : command.commands) {
      out += fmt::format("complete -c isthmus -n {} -f -a {} -d {}\n", quoted(condition, true), nested.name,
                         quoted(nested.summary, true));
      out += fish_options(nested, condition + "; and __fish_seen_subcommand_from " + nested.name);
    }
    out += fish_options(command, condition);
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(const CommandDoc& root, const std::string& shell) {
  if (shell == "bash") return bash(root);
  if (shell == "zsh") return zsh(root);
  if (shell == "fish") return fish(root);
  const std::vector<std::string> known = {"bash", "zsh", "fish"};
  return invalid_argument(fmt::format("no completion for the shell '{}': use bash, zsh or fish{}", shell,
                                      did_you_mean(shell, known)));
}

}  // namespace isthmus::cli
