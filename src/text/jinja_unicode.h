// UTF-8 and character classes as Python's str sees them, for the template interpreter.
//
// Text is UTF-8; a byte that is not part of a valid sequence counts as one character of its own (like
// Python's surrogateescape), so nothing here fails. Positions and lengths are in characters unless "byte" is
// said. Case mapping and classes come from tables generated from Unicode data (jinja_unicode_tables.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isthmus::jinja {

/// Bytes of the character at `pos` (< text.size()): 1 to 4.
size_t char_bytes(std::string_view text, size_t pos);
/// The code point at byte `pos`; 0xDC00 + byte for a byte that is not valid UTF-8. Advances `pos`.
char32_t next_char(std::string_view text, size_t& pos);
/// Appends a code point; 0xDC80…0xDCFF gives back the raw byte.
void append_char(std::string& out, char32_t c);
size_t count_chars(std::string_view text);
/// Byte offset of character `index`; text.size() when index is at or past the end.
size_t byte_of_char(std::string_view text, size_t index);

bool is_space(char32_t c);
bool is_line_break(char32_t c);
bool is_digit(char32_t c);    // str.isdigit
bool is_decimal(char32_t c);  // str.isdecimal
bool is_numeric(char32_t c);  // str.isnumeric
bool is_alpha(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_printable(char32_t c);
/// Word characters of an identifier or of regex \w.
bool is_word(char32_t c);
char32_t to_upper(char32_t c);
char32_t to_lower(char32_t c);
/// The whole string, with the few mappings that change length ("ß" → "SS").
std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// Appends the lower case of the one character at byte `pos` of `text`; its neighbours decide a final sigma's
/// form.
void append_lower(std::string& out, std::string_view text, size_t pos);

/// Leading/trailing whitespace removed.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace isthmus::jinja
