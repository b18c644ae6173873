// Python's str methods as plain functions, shared by the methods and the filters of the template language.
//
// Text in, text out; lengths are in characters. The caller has charged the budget for the input; results that
// can outgrow the input charge it themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_error.h"

namespace isthmus::jinja {

/// Byte offset of `needle` from `from` on, or npos; linear in both even on hostile input, unlike
/// string::find.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
/// The last one; charges for the work that a long needle can cause.
size_t find_last_text(Budget& budget, std::string_view text, std::string_view needle);

enum class Side { kLeft, kRight, kBoth };

/// str.strip and its siblings; without `chars`, whitespace.
std::string_view strip(std::string_view text, std::optional<std::string_view> chars, Side side);
/// str.split / str.rsplit; without `separator`, at runs of whitespace. `limit` < 0: no limit.
std::vector<std::string_view> split(Budget& budget, std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit,
                                    bool from_right);
std::vector<std::string_view> split_lines(Budget& budget, std::string_view text, bool keep_ends);
/// str.replace; `limit` < 0: all.
std::string replace(Budget& budget, std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);
std::string capitalize(std::string_view text);
/// str.title: a letter after a non-letter is upper case, every other lower case.
std::string title(std::string_view text);
std::string swap_case(std::string_view text);
/// str.ljust (kRight: padding there), str.rjust (kLeft) and str.center (kBoth).
std::string pad(Budget& budget, std::string_view text, int64_t width, std::string_view fill, Side side);
std::string zero_fill(Budget& budget, std::string_view text, int64_t width);
std::string expand_tabs(Budget& budget, std::string_view text, int64_t size);
/// Occurrences of `needle` that do not overlap; an empty one fits between all characters.
int64_t count_of(std::string_view text, std::string_view needle);
/// "&<>'\"" as HTML entities, as markupsafe writes them.
std::string escape_html(std::string_view text);

/// What Python's int(text, base) and float(text) read; nullopt where they raise ValueError.
std::optional<int64_t> parse_int(std::string_view text, int64_t base);
std::optional<double> parse_float(std::string_view text);

}  // namespace isthmus::jinja
