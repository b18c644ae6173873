// How commands write: JSON documents, tables, sizes, answers as they come, remarks. All of it but the remarks
// goes to stdout unless a stream is given.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace isthmus::cli {

/// One JSON document and a newline. Strings that are not UTF-8 come out with U+FFFD in place of the bad
/// bytes.
void print_json(const nlohmann::ordered_json& document);

/// {"error": {"code": …, "message": …}}: what a failing command prints under --json.
nlohmann::ordered_json error_json(const Status& status);

/// "98.4 MB": powers of 1000, three digits.
std::string human_bytes(uint64_t bytes);

/// "134.5 M", "1.54 B": a count of weights.
std::string human_count(uint64_t count);

/// Text safe for a terminal: control characters other than newline and tab as "\x1b". A model file or a
/// server must not be able to steer the terminal through a name or a template.
std::string printable(std::string_view text);

/// A remark on standard error. What cannot be written is dropped: no command fails because nobody listens to
/// its remarks.
void say_text(std::string_view text);
template <typename... Values>
void say(fmt::format_string<Values...> format, Values&&... values) {
  say_text(fmt::format(format, std::forward<Values>(values)...));
}

/// A piece of an answer on standard output, at once; disarmed (printable()) when a terminal shows it, and
/// byte for byte otherwise. False when it cannot be written, so that nothing more need be generated.
bool write_answer(std::string_view text);

/// Rows with aligned columns, two blanks apart. The first row is the heading.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Columns (by index) that are set flush right.
  void align_right(std::vector<size_t> columns) { right_ = std::move(columns); }
  std::string str() const;
  void print(std::FILE* out = stdout) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
};

}  // namespace isthmus::cli
