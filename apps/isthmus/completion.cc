#include "apps/isthmus/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

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

/// Words that an argument or the value of a flag can be; empty when it can be anything.
std::string known_words(const std::string& argument) {
  static const std::map<std::string, std::string> kWords = {
      {"SHELL", "bash zsh fish"},
      {"TASK", "ppl kl choice humaneval"},
      {"ACTION", "list drop export import"},
      {"--kv", "f32 f16 bf16 q8_0"},
      {"--precision", "default fast f32"},
      {"--mode", "window token"},
      {"--format", "table csv"},
      {"--template", "chatml llama3 gemma phi3"},
  };
  const auto found = kWords.find(argument);
  return found == kWords.end() ? "" : found->second;
}

/// Whether a path can stand for an argument, or be the value of a flag.
bool takes_files(const std::string& argument) {
  if (argument == "--template") return true;
  return known_words(argument).empty() && argument != "NAME" && argument != "COMMAND";
}

bool arguments_take_files(const CommandDoc& doc) {
  return std::any_of(doc.positionals.begin(), doc.positionals.end(),
                     [](const OptionDoc& positional) { return takes_files(positional.name); });
}

/// Shell words that print the models that an argument can name; empty when it names none. A MODEL may still
/// have to be fetched, a NAME is of one that is here.
std::string model_lists(const OptionDoc& positional) {
  std::string here = "isthmus list --names 2>/dev/null";
  if (positional.name == "NAME") return here;
  return positional.name == "MODEL" ? here + "; isthmus list --catalogue --names 2>/dev/null" : "";
}

/// Words for the arguments of a command: its nested commands, what is known of its arguments, and for
/// `help` the commands.
std::string argument_words(const CommandDoc& doc, const CommandDoc& root) {
  std::string out = verbs(doc);
  for (const OptionDoc& positional : doc.positionals) {
    const std::string words = positional.name == "COMMAND" ? verbs(root) : known_words(positional.name);
    if (!words.empty()) out += (out.empty() ? "" : " ") + words;
  }
  return out;
}

std::string argument_models(const CommandDoc& doc) {
  for (const OptionDoc& positional : doc.positionals) {
    std::string lists = model_lists(positional);
    if (!lists.empty()) return lists;
  }
  return "";
}

/// Cases of "VERB SECOND-WORD": nested commands first, then the verb with any second word.
std::string bash_cases(const CommandDoc& root) {
  std::string out;
  for (const CommandDoc& command : root.commands) {
    for (const CommandDoc& nested : command.commands) {
      out += fmt::format("    '{} {}') flags={} ;;\n", command.name, nested.name,
                         quoted(all_flags(nested) + " " + all_flags(command), false));
    }
    const std::string models = argument_models(command);
    out += fmt::format("    '{} '*) flags={} words={}{} ;;\n", command.name,
                       quoted(all_flags(command), false), quoted(argument_words(command, root), false),
                       (models.empty() ? "" : " models=" + quoted(models, false)) +
                           (arguments_take_files(command) ? "" : " files=''"));
  }
  return out;
}

/// Cases of a flag whose value is one of some words.
std::string bash_values(const CommandDoc& root) {
  std::map<std::string, std::string> values;
  for (const CommandDoc& command : root.commands) {
    for (const OptionDoc& option : command.options) {
      for (const std::string& flag : option.flags) {
        if (!known_words(flag).empty()) values[flag] = known_words(flag);
      }
    }
  }
  std::string out;
  for (const auto& [flag, words] : values) {
    out += fmt::format("    {}) words={} flags='' models='' files={} ;;\n", flag, quoted(words, false),
                       takes_files(flag) ? "yes" : "''");
  }
  return out;
}

std::string bash(const CommandDoc& root) {
  return fmt::format(R"SH(# bash completion for isthmus
_isthmus() {{
  # Model names hold colons, at which bash parts words: the word is taken from the line itself.
  local line=${{COMP_LINE:0:COMP_POINT}}
  local cur=${{line##*[[:space:]]}} flags='' words='' models='' files=yes
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W {} -- "$cur")
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{}  esac
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{}  esac
  if [ "${{cur#-}}" != "$cur" ]; then
    words=$flags models='' files=''
  fi
  [ -z "$models" ] || words="$words $(eval "$models" | sort -u | tr '\n' ' ')"
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  if [ -n "$files" ]; then
    [ "${{#COMPREPLY[@]}}" -gt 0 ] || compopt -o filenames 2>/dev/null
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$cur")
  fi
  if [ "${{cur%:*}}" != "$cur" ] && [ "${{COMP_WORDBREAKS#*:}}" != "$COMP_WORDBREAKS" ]; then
    local before=${{cur%:*}}: i
    for i in "${{!COMPREPLY[@]}}"; do COMPREPLY[i]=${{COMPREPLY[i]#"$before"}}; done
  fi
}}
complete -F _isthmus isthmus
)SH",
                     quoted(verbs(root) + " " + all_flags(root), false), bash_cases(root), bash_values(root));
}

/// Text inside the brackets of a zsh specification.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const std::string& name) {
  const std::string words = known_words(name);
  return takes_files(name) ? "_files" : "(" + words + ")";
}

std::string zsh_options(const CommandDoc& doc, const std::string& indent) {
  std::string out;
  for (const OptionDoc& option : doc.options) {
    for (const std::string& flag : option.flags) {
      const std::string value = option.value.empty() ? "" : ":" + option.value + ":" + zsh_action(flag);
      out += indent + quoted(fmt::format("{}[{}]{}", flag, zsh_text(option.text), value), false) + " \\\n";
    }
  }
  return out;
}

/// A specification per argument, in order; the last of them takes all that follow.
std::string zsh_arguments(const CommandDoc& command, const CommandDoc& root, const std::string& indent) {
  std::string out;
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    const OptionDoc& positional = command.positionals[i];
    std::string action = zsh_action(positional.name);
    if (!model_lists(positional).empty()) {
      action = positional.name == "NAME" ? "_isthmus_here" : "_isthmus_models";
    }
    if (positional.name == "COMMAND") action = "(" + verbs(root) + ")";
    const std::string place = positional.repeated ? "*" : std::to_string(i + 1);
    out += fmt::format("{}{} \\\n", indent,
                       quoted(fmt::format("{}:{}:{}", place, positional.name, action), false));
  }
  if (!command.commands.empty())
    out += indent + quoted("1:command:(" + verbs(command) + ")", false) + " \\\n";
  return out;
}

std::string zsh(const CommandDoc& root) {
  std::string list;
  std::string cases;
  for (const CommandDoc& command : root.commands) {
    list += "    " + quoted(command.name + ":" + command.summary, false) + "\n";
    cases += fmt::format("    {})\n      _arguments \\\n{}", command.name, zsh_options(command, "        "));
    for (const CommandDoc& nested : command.commands) cases += zsh_options(nested, "        ");
    cases += zsh_arguments(command, root, "        ") + "        && return ;;\n";
  }
  return fmt::format(R"SH(#compdef isthmus
_isthmus_here() {{
  local -a names
  names=(${{(f)"$(isthmus list --names 2>/dev/null)"}})
  compadd -a names
}}
_isthmus_models() {{
  local -a names
  names=(${{(fu)"$(isthmus list --names 2>/dev/null; isthmus list --catalogue --names 2>/dev/null)"}})
  compadd -a names
  _files
}}
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
if [ "$funcstack[1]" = _isthmus ]; then
  _isthmus "$@"
else
  compdef _isthmus isthmus
fi
)SH",
                     list, cases);
}

std::string fish_options(const CommandDoc& doc, const std::string& condition) {
  std::string out;
  for (const OptionDoc& option : doc.options) {
    std::string line = "complete -c isthmus -n " + quoted(condition, true);
    std::string words;
    for (const std::string& flag : option.flags) {
      line += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      if (words.empty()) words = known_words(flag);
    }
    if (!option.value.empty()) line += takes_files(option.flags.back()) ? " -r" : " -x";
    if (!words.empty()) line += " -a " + quoted(words, true);
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
    const std::string files = arguments_take_files(command) ? "" : " -f";
    const std::string line = "complete -c isthmus -n " + quoted(condition, true) + files;
    const std::string words = command.commands.empty() ? argument_words(command, root) : "";
    const std::string models = argument_models(command);
    if (!words.empty()) out += line + " -a " + quoted(words, true) + "\n";
    if (!models.empty()) out += line + " -a " + quoted("(" + models + ")", true) + "\n";
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
