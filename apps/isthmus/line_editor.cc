#include "apps/isthmus/line_editor.h"

#include <editline/readline.h>

#include <cstdlib>
#include <iostream>

#include "os/terminal.h"

namespace isthmus::cli {
namespace {

constexpr const char* kQuotes = "\"\"\"";
constexpr const char* kMore = "… ";

}  // namespace

LineEditor::LineEditor()
    : terminal_(os::is_terminal(os::Stream::kInput) && os::is_terminal(os::Stream::kOutput)) {
  if (terminal_) using_history();
}

std::optional<std::string> LineEditor::read_line(const std::string& prompt) {
  if (!terminal_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  char* typed = readline(prompt.c_str());
  if (typed == nullptr) return std::nullopt;
  std::string line(typed);
  std::free(typed);  // NOLINT: libedit hands out malloc'ed lines
  if (!line.empty()) add_history(line.c_str());
  return line;
}

std::optional<std::string> LineEditor::read_message(const std::string& prompt) {
  auto line = read_line(prompt);
  if (!line) return std::nullopt;
  std::string message;
  if (*line == kQuotes) {
    while ((line = read_line(kMore)) && *line != kQuotes) message += *line + "\n";
    if (!message.empty()) message.pop_back();
    return message;
  }
  while (line && !line->empty() && line->back() == '\\') {
    line->pop_back();
    message += *line + "\n";
    line = read_line(kMore);
  }
  return line ? message + *line : message;
}

}  // namespace isthmus::cli
