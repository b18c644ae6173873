#include "apps/isthmus/line_editor.h"

#include <array>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <string_view>

#include "apps/isthmus/interrupt.h"
#include "apps/isthmus/output.h"
#include "os/console.h"
#include "os/terminal.h"

namespace isthmus::cli {
namespace {

constexpr const char* kQuotes = "\"\"\"";
constexpr const char* kMore = "… ";
constexpr int kHistoryLines = 1000;
constexpr wchar_t kControlD = L'\x04';
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

struct KeyBinding {
  const char* keys;
  const char* command;
};

// What terminals send for keys that libedit does not know by itself.
constexpr KeyBinding kBindings[] = {
    {"\\e[1~", "ed-move-to-beg"}, {"\\e[7~", "ed-move-to-beg"},  {"\\e[H", "ed-move-to-beg"},
    {"\\eOH", "ed-move-to-beg"},  {"\\e[4~", "ed-move-to-end"},  {"\\e[8~", "ed-move-to-end"},
    {"\\e[F", "ed-move-to-end"},  {"\\eOF", "ed-move-to-end"},   {"\\e[3~", "ed-delete-next-char"},
    {"\\e[1;5C", "em-next-word"}, {"\\e[5C", "em-next-word"},    {"\\e[1;5D", "ed-prev-word"},
    {"\\e[5D", "ed-prev-word"},   {"\\e[1;3C", "em-next-word"},  {"\\e[1;3D", "ed-prev-word"},
    {"^R", "em-inc-search-prev"}, {"^W", "ed-delete-prev-word"}, {"\\e[200~", "isthmus-paste"},
};

/// Characters are read and measured by the locale; ours are always UTF-8.
void use_utf8() {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
}

bool knows_brackets() {
  const char* type = std::getenv("TERM");
  return type != nullptr && *type != '\0' && std::string_view(type) != "dumb";
}

/// Bytes of the character that begins with `first`; 1 for what begins none.
size_t utf8_length(unsigned char first) {
  if (first >= 0xF0 && first < 0xF8) return 4;
  if (first >= 0xE0) return first < 0xF0 ? 3 : 1;
  return first >= 0xC2 ? 2 : 1;
}

std::string to_utf8(const wchar_t* text, size_t count) {
  std::string out;
  std::array<char, 16> bytes{};
  std::mbstate_t state{};
  for (size_t i = 0; i < count; ++i) {
    const size_t n = std::wcrtomb(bytes.data(), text[i], &state);
    if (n != static_cast<size_t>(-1)) out.append(bytes.data(), n);
  }
  return out;
}

void write_now(const char* text) {
  static_cast<void>(std::fputs(text, stdout));
  std::fflush(stdout);
}

}  // namespace

/// The functions that libedit calls.
struct EditorHooks {
  static LineEditor& owner(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<LineEditor*>(data);
  }

  static char* prompt(EditLine* edit) { return owner(edit).prompt_.data(); }

  static bool next_byte(LineEditor& editor, EditLine* edit, char& byte) {
    while (true) {
      const size_t columns = os::terminal_columns(os::Stream::kOutput);
      if (columns != editor.columns_) el_resize(edit);
      editor.columns_ = columns;
      if (resumed()) editor.begin_editing(true);
      if (wants_to_stop()) {
        editor.input_status_ = cancelled("stopped by the user");
        return false;
      }
      const auto got = os::read_input({&byte, 1}, std::chrono::milliseconds(250));
      editor.input_status_ = got.status();
      if (!got.ok() || got->state == os::InputState::kEnd) return false;
      if (got->state == os::InputState::kBytes) return true;
    }
  }

  /// One character; -1 at an error, a signal or the end of the input.
  static int read_character(EditLine* edit, wchar_t* out) {
    LineEditor& editor = owner(edit);
    std::array<char, 4> bytes{};
    if (!next_byte(editor, edit, bytes[0])) return -1;
    const size_t length = utf8_length(static_cast<unsigned char>(bytes[0]));
    for (size_t i = 1; i < length; ++i) {
      if (!next_byte(editor, edit, bytes[i])) return -1;
    }
    std::mbstate_t state{};
    const size_t used = std::mbrtowc(out, bytes.data(), length, &state);
    if (used > length) *out = L'\xFFFD';
    if (bytes[0] == '\0') *out = kControlD;  // what a terminal hands over for one that was typed ahead
    return 1;
  }

  /// Text between the marks of a paste, put in as it stands: a line end in it ends no message.
  static unsigned char paste(EditLine* edit, int /*key*/) {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnd)) {
      if (el_wgetc(edit, &c) != 1) return CC_EOF;
      text += c == L'\r' ? L'\n' : c;
    }
    text.resize(text.size() - kPasteEnd.size());
    while (text.ends_with(L'\n')) text.pop_back();
    return el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }
};

LineEditor::LineEditor()
    : terminal_(os::is_terminal(os::Stream::kInput) && os::is_terminal(os::Stream::kOutput)),
      shows_(os::is_terminal(os::Stream::kInput)),
      bracketed_(knows_brackets()),
      edit_(nullptr, el_end),
      history_(nullptr, history_end) {
  if (!terminal_) return;
  use_utf8();
  edit_.reset(el_init("isthmus", stdin, stdout, stderr));
  history_.reset(history_init());
  if (edit_ == nullptr || history_ == nullptr) {
    terminal_ = false;
    return;
  }
  HistEvent event{};
  history(history_.get(), &event, H_SETSIZE, kHistoryLines);
  history(history_.get(), &event, H_SETUNIQUE, 1);
  EditLine* edit = edit_.get();
  el_set(edit, EL_CLIENTDATA, static_cast<void*>(this));
  el_set(edit, EL_PROMPT, EditorHooks::prompt);
  el_set(edit, EL_SIGNAL, 0);
  el_set(edit, EL_EDITOR, "emacs");
  el_set(edit, EL_HIST, history, history_.get());
  el_set(edit, EL_GETCFN, EditorHooks::read_character);
  // The narrow form of this call would copy both texts and lose the copies.
  el_wset(edit, EL_ADDFN, L"isthmus-paste", L"Put in what was pasted", EditorHooks::paste);
  for (const auto& [keys, command] : kBindings) {
    el_set(edit, EL_BIND, keys, command, static_cast<const char*>(nullptr));
  }
  el_source(edit, nullptr);  // the user's ~/.editrc
}

LineEditor::~LineEditor() = default;

Result<Typed> LineEditor::plain_line() {
  if (shows_) say_text(prompt_);
  auto line = plain_.next();
  if (line.status().code() == Code::kCancelled) return Typed{Typed::Kind::kInterrupted, ""};
  ISTHMUS_RETURN_IF_ERROR(line.status());
  if (!*line) return Typed{Typed::Kind::kEnd, ""};
  return Typed{Typed::Kind::kMessage, std::move(**line)};
}

/// Takes the terminal: before the prompt is seen, or the terminal itself echoes what comes at once. `again`:
/// after a stop, when the shell has changed its mode and written below the line.
void LineEditor::begin_editing(bool again) {
  if (again) el_set(edit_.get(), EL_PREP_TERM, 0);
  el_set(edit_.get(), EL_PREP_TERM, 1);
  if (bracketed_) write_now("\x1b[?2004h");
  if (again) el_set(edit_.get(), EL_REFRESH);
}

Result<Typed> LineEditor::edit_line() {
  static_cast<void>(resumed());
  begin_editing(false);
  int count = 0;
  input_status_ = ok_status();
  const wchar_t* typed = el_wgets(edit_.get(), &count);
  if (bracketed_) write_now("\x1b[?2004l");
  el_set(edit_.get(), EL_PREP_TERM, 0);
  if (typed != nullptr && count > 0) {
    std::string line = to_utf8(typed, static_cast<size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    return Typed{Typed::Kind::kMessage, std::move(line)};
  }
  write_now("\n");
  if (input_status_.code() == Code::kCancelled) {
    const LineInfoW* line = el_wline(edit_.get());
    return Typed{Typed::Kind::kInterrupted,
                 to_utf8(line->buffer, static_cast<size_t>(line->lastchar - line->buffer))};
  }
  ISTHMUS_RETURN_IF_ERROR(input_status_);
  return Typed{Typed::Kind::kEnd, ""};
}

Result<Typed> LineEditor::read_line(const std::string& prompt) {
  prompt_ = prompt;
  ISTHMUS_ASSIGN_OR_RETURN(Typed typed, terminal_ ? edit_line() : plain_line());
  if (typed.kind == Typed::Kind::kInterrupted && terminated()) typed.kind = Typed::Kind::kEnd;
  return typed;
}

void LineEditor::remember(const std::string& message) {
  if (!terminal_ || message.empty()) return;
  HistEvent event{};
  history(history_.get(), &event, H_ENTER, message.c_str());
}

/// What follows the line of quotation marks, up to the next such line.
Result<Typed> LineEditor::quoted_lines() {
  std::string message;
  while (true) {
    ISTHMUS_ASSIGN_OR_RETURN(Typed line, read_line(kMore));
    if (line.kind == Typed::Kind::kInterrupted) return Typed{line.kind, message + line.text};
    if (line.kind == Typed::Kind::kEnd && message.empty()) return line;
    if (line.kind == Typed::Kind::kEnd || line.text == kQuotes) break;
    message += line.text + "\n";
  }
  if (!message.empty()) message.pop_back();
  return Typed{Typed::Kind::kMessage, std::move(message)};
}

/// `line` and those that follow it as long as they end with a backslash.
Result<Typed> LineEditor::continued_lines(Typed line) {
  std::string message;
  while (line.kind == Typed::Kind::kMessage && line.text.ends_with('\\')) {
    line.text.pop_back();
    message += line.text + "\n";
    ISTHMUS_ASSIGN_OR_RETURN(line, read_line(kMore));
  }
  if (line.kind == Typed::Kind::kEnd && !message.empty()) {
    message.pop_back();
    return Typed{Typed::Kind::kMessage, std::move(message)};
  }
  return Typed{line.kind, message + line.text};
}

Result<Typed> LineEditor::read_message(const std::string& prompt) {
  ISTHMUS_ASSIGN_OR_RETURN(Typed typed, read_line(prompt));
  const bool quoted = typed.kind == Typed::Kind::kMessage && typed.text == kQuotes;
  ISTHMUS_ASSIGN_OR_RETURN(typed, quoted ? quoted_lines() : continued_lines(std::move(typed)));
  if (typed.kind == Typed::Kind::kMessage) remember(typed.text);
  return typed;
}

}  // namespace isthmus::cli
