#include "apps/isthmus/describe.h"

#include <fmt/core.h>

#include <algorithm>

namespace isthmus::cli {
namespace {

constexpr size_t kTextColumn = 28;
constexpr size_t kLineWidth = 100;

/// A default that tells the reader something: not empty, not an empty list, not a switch's "false", and not
/// explained in the description already.
std::string worthwhile_default(const CLI::Option& option, bool is_switch) {
  std::string text = option.get_default_str();
  if (option.get_description().find("(default") != std::string::npos) return "";
  if (is_switch || text == "{}" || text == "\"\"") return "";
  // A list comes in brackets of its own: "[128,512]".
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

/// Name of a value for people: CLI11's type names carry ranges and C++ flavour.
std::string value_name(const CLI::Option& option) {
  std::string type = option.get_type_name();
  type = type.substr(0, type.find(':'));
  if (type.empty()) return "VALUE";
  if (type == "UINT" || type == "INT") return "N";
  return type == "FLOAT" ? "X" : type;
}

/// A description as a sentence begins; words that name something ("kl: …", "bash, zsh or fish") stay.
std::string as_sentence(std::string text) {
  const size_t word = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
  const bool plain = word > 0 && (word == text.size() || text[word] == ' ');
  if (plain) text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

OptionDoc describe_option(const CLI::Option& option) {
  OptionDoc doc;
  for (const std::string& name : option.get_snames()) doc.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) doc.flags.push_back("--" + name);
  const bool is_switch = option.get_items_expected_max() == 0;
  if (doc.flags.empty()) doc.name = option.get_name();
  if (!is_switch) doc.value = value_name(option);
  doc.text = as_sentence(option.get_description());
  doc.default_value = worthwhile_default(option, is_switch);
  doc.required = option.get_required();
  doc.repeated = option.get_items_expected_max() > 1;
  return doc;
}

/// `text` broken into lines that end before `right`, each but the first indented by `left` blanks. Line ends
/// and the blanks that begin a line stay.
std::string wrap(const std::string& text, size_t left, size_t right) {
  std::string out;
  size_t column = left;
  bool line_start = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const size_t length = end - begin;
    if (!line_start && column + 1 + length > right) {
      out += "\n" + std::string(left, ' ');
      column = left;
    } else if (!line_start) {
      out += " ";
      ++column;
    }
    out.append(text, begin, length);
    column += length;
    line_start = end < text.size() && text[end] == '\n';
    if (line_start) {
      out += "\n" + std::string(left, ' ');
      column = left;
    }
    begin = end + 1;
  }
  return out;
}

std::string item(const std::string& head, const std::string& text) {
  std::string line = "  " + head;
  if (line.size() + 2 > kTextColumn) {
    line += "\n" + std::string(kTextColumn, ' ');
  } else {
    line.resize(kTextColumn, ' ');
  }
  return line + wrap(text, kTextColumn, kLineWidth) + "\n";
}

std::string option_head(const OptionDoc& option) {
  std::string head;
  for (const std::string& flag : option.flags) head += (head.empty() ? "" : ", ") + flag;
  if (!option.value.empty()) head += " " + option.value;
  return head;
}

std::string option_text(const OptionDoc& option) {
  if (option.default_value.empty()) return option.text;
  return fmt::format("{} [{}]", option.text, option.default_value);
}

std::string positional_word(const OptionDoc& option) {
  const std::string word = option.name + (option.repeated ? "…" : "");
  return option.required ? word : "[" + word + "]";
}

/// The commands of `doc` under their headings, in the order in which the groups first appear.
std::string command_list(const CommandDoc& doc) {
  std::vector<std::string> groups;
  for (const CommandDoc& command : doc.commands) {
    if (std::find(groups.begin(), groups.end(), command.group) == groups.end()) {
      groups.push_back(command.group);
    }
  }
  std::string out;
  for (const std::string& group : groups) {
    out += "\n" + group + ":\n";
    for (const CommandDoc& command : doc.commands) {
      if (command.group == group) out += item(command.name, command.summary);
    }
  }
  return out;
}

}  // namespace

CommandDoc describe(const CLI::App& app) {
  CommandDoc doc;
  doc.name = app.get_name();
  doc.summary = app.get_description();
  doc.description = app.get_footer();
  doc.group = app.get_group();
  for (const CLI::App* parent = app.get_parent(); parent != nullptr; parent = parent->get_parent()) {
    doc.name = parent->get_name() + " " + doc.name;
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    (option->get_positional() ? doc.positionals : doc.options).push_back(describe_option(*option));
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;
    doc.commands.push_back(describe(*command));
    doc.commands.back().name = command->get_name();
  }
  return doc;
}

std::string usage_line(const CommandDoc& doc) {
  std::string line = doc.name;
  if (!doc.options.empty()) line += " [options]";
  if (!doc.commands.empty()) line += " COMMAND …";
  for (const OptionDoc& positional : doc.positionals) line += " " + positional_word(positional);
  return line;
}

std::string help_text(const CommandDoc& doc) {
  std::string out = doc.summary + ".\n\nUsage: " + usage_line(doc) + "\n";
  if (!doc.description.empty()) out += "\n" + wrap(doc.description, 0, kLineWidth) + "\n";
  out += command_list(doc);
  if (!doc.positionals.empty()) {
    out += "\nArguments:\n";
    for (const OptionDoc& positional : doc.positionals) {
      out += item(positional.name, option_text(positional));
    }
  }
  if (!doc.options.empty()) {
    out += "\nOptions:\n";
    for (const OptionDoc& option : doc.options) out += item(option_head(option), option_text(option));
  }
  return out;
}

}  // namespace isthmus::cli
