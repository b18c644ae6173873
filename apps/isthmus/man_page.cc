#include "apps/isthmus/man_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>

#include "apps/isthmus/version.h"
#include "os/file.h"

namespace isthmus::cli {
namespace {

/// Text as roff wants it: backslashes, hyphens, and lines that begin with a control character escaped.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool line_start = i == 0 || text[i - 1] == '\n';
    if (line_start && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\') {
      out += "\\e";
    } else if (text[i] == '-') {
      out += "\\-";
    } else {
      out += text[i];
    }
  }
  return out;
}

/// "isthmus eval kl" -> "isthmus-eval-kl".
std::string page_name(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string paragraphs(const std::string& text) {
  std::string out = roff(text);
  for (size_t at = out.find("\n\n"); at != std::string::npos; at = out.find("\n\n", at + 4)) {
    out.replace(at, 2, "\n.PP\n");
  }
  return out;
}

std::string option_entry(const OptionDoc& option) {
  std::string head;
  for (const std::string& flag : option.flags) {
    head += (head.empty() ? "" : ", ") + fmt::format("\\fB{}\\fR", roff(flag));
  }
  if (option.flags.empty()) head = fmt::format("\\fI{}\\fR", roff(option.name));
  if (!option.flags.empty() && !option.value.empty()) head += fmt::format(" \\fI{}\\fR", roff(option.value));
  std::string text = roff(option.text);
  if (!option.default_value.empty()) text += fmt::format(" [{}]", roff(option.default_value));
  return fmt::format(".TP\n{}\n{}\n", head, text);
}

Status write_page(const CommandDoc& doc, const std::filesystem::path& folder) {
  const std::string path = folder / (page_name(doc.name) + ".1");
  const std::string page = man_page(doc, ISTHMUS_VERSION);
  ISTHMUS_RETURN_IF_ERROR(publish_file(real_file_system(), path, std::as_bytes(std::span(page))));
  for (const CommandDoc& command : doc.commands) {
    CommandDoc named = command;
    named.name = doc.name + " " + command.name;
    ISTHMUS_RETURN_IF_ERROR(write_page(named, folder));
  }
  return ok_status();
}

}  // namespace

std::string man_page(const CommandDoc& doc, const std::string& version) {
  const std::string name = page_name(doc.name);
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out =
      fmt::format(".TH \"{}\" 1 \"\" \"isthmus {}\" \"Isthmus manual\"\n", roff(upper), version);
  out += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(doc.summary));
  out += fmt::format(".SH SYNOPSIS\n{}\n", roff(usage_line(doc)));
  if (!doc.description.empty()) out += ".SH DESCRIPTION\n" + paragraphs(doc.description) + "\n";
  if (!doc.commands.empty()) out += ".SH COMMANDS\n";
  for (const CommandDoc& command : doc.commands) {
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(command.name), roff(command.summary));
  }
  if (!doc.positionals.empty()) out += ".SH ARGUMENTS\n";
  for (const OptionDoc& positional : doc.positionals) out += option_entry(positional);
  if (!doc.options.empty()) out += ".SH OPTIONS\n";
  for (const OptionDoc& option : doc.options) out += option_entry(option);
  out +=
      ".SH EXIT STATUS\n0 done; 1 failed; 2 wrong usage; 3 not found; 4 corrupt input; 5 out of resources; "
      "6 unsupported; 7 a server was unavailable; 8 deadline passed; 130 interrupted.\n";
  return out;
}

Status write_man_pages(const CLI::App& root, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return io_error(fmt::format("cannot make the folder '{}': {}", folder, error.message()));
  return write_page(describe(root), folder);
}

}  // namespace isthmus::cli
