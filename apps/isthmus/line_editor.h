// Reading what a person types: lines with editing and history on a terminal (libedit), plain lines otherwise.
//
// A message may have several lines: between two lines of three quotation marks, with a backslash at the end
// of each line but the last, or pasted (terminals that mark pasted text). The terminal is in its usual mode
// except while a line is read, so whatever ends the program elsewhere leaves it as it was. One per program;
// not thread-safe.
#pragma once

#include <histedit.h>

#include <memory>
#include <string>

#include "apps/isthmus/input.h"
#include "base/status.h"

namespace isthmus::cli {

struct Typed {
  enum class Kind {
    kMessage,
    kInterrupted,  // Ctrl-C: what was typed of the message is gone
    kEnd,          // Ctrl-D on an empty line, the end of the input, or SIGTERM
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of kMessage; of kInterrupted, what is gone
};

class LineEditor {
 public:
  LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();
  /// The next message. The prompt is shown when a person types. kIo.
  Result<Typed> read_message(const std::string& prompt);

 private:
  friend struct EditorHooks;
  Result<Typed> read_line(const std::string& prompt);
  void begin_editing(bool again);
  Result<Typed> edit_line();
  Result<Typed> plain_line();
  Result<Typed> quoted_lines();
  Result<Typed> continued_lines(Typed line);
  void remember(const std::string& message);

  bool terminal_;   // lines are edited
  bool shows_;      // a person types, and may not see standard output
  bool bracketed_;  // the terminal may mark what is pasted
  std::string prompt_;
  Status input_status_;  // why the last wait for a key failed
  size_t columns_ = 0;
  LineReader plain_;
  std::unique_ptr<EditLine, void (*)(EditLine*)> edit_;
  std::unique_ptr<History, void (*)(History*)> history_;
};

}  // namespace isthmus::cli
