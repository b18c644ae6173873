#include "apps/isthmus/output.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "os/terminal.h"

namespace isthmus::cli {
namespace {

/// Columns that a text takes: its code points. Wide characters do not occur in our tables.
size_t width(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return n;
}

std::string three_digits(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

/// `value` scaled by powers of 1000 with the unit of that power.
template <size_t N>
std::string scaled(uint64_t value, const std::array<std::string_view, N>& units) {
  double scaled_value = static_cast<double>(value);
  size_t unit = 0;
  // 999.5 and above would print as "1000".
  while (unit + 1 < N && scaled_value >= 999.5) {
    scaled_value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{}{}{}", value, units[0].empty() ? "" : " ", units[0]);
  return fmt::format("{} {}", three_digits(scaled_value), units[unit]);
}

}  // namespace

void print_json(const nlohmann::ordered_json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

nlohmann::ordered_json error_json(const Status& status) {
  return {{"error", {{"code", std::string(code_name(status.code()))}, {"message", status.message()}}}};
}

std::string human_bytes(uint64_t bytes) {
  return scaled(bytes, std::array<std::string_view, 6>{"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string human_count(uint64_t count) {
  return scaled(count, std::array<std::string_view, 5>{"", "k", "M", "B", "T"});
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F: control characters as well
      out += fmt::format("\\x{:02x}", next);
      ++i;
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string Table::str() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - width(row[i]), ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      if (i > 0) line += "  ";
      line += right ? gap + row[i] : row[i] + gap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

void say_text(std::string_view text) {
  std::fflush(stdout);  // on a terminal, remarks stand behind what was printed before them
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
  std::fflush(stderr);
}

bool write_answer(std::string_view text) {
  static const bool on_terminal = os::is_terminal(os::Stream::kOutput);
  const std::string shown = on_terminal ? printable(text) : std::string(text);
  return std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size() && std::fflush(stdout) == 0;
}

void Table::print(std::FILE* out) const { fmt::print(out, "{}", str()); }

}  // namespace isthmus::cli
