// Reading what a person types: lines with editing and history on a terminal (libedit), plain lines otherwise.
//
// A message may have several lines: between two lines of three quotation marks, or with a backslash at the
// end of each line but the last. One per program; not thread-safe.
#pragma once

#include <optional>
#include <string>

namespace isthmus::cli {

class LineEditor {
 public:
  LineEditor();
  /// The next message; nullopt at the end of the input. The prompt is shown on a terminal only.
  std::optional<std::string> read_message(const std::string& prompt);

 private:
  std::optional<std::string> read_line(const std::string& prompt);

  bool terminal_;
};

}  // namespace isthmus::cli
