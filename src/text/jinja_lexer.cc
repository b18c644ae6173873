#include "text/jinja_lexer.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) lex_text();
    push(TokenType::kEnd, pos_);
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : '\0'; }
  bool at(std::string_view text) const { return source_.substr(pos_).starts_with(text); }
  [[noreturn]] static void error(std::string message, size_t at) {
    fail(Code::kCorrupt, std::move(message), static_cast<Offset>(at));
  }

  Token& push(TokenType type, size_t at, std::string text = {}) {
    tokens_.push_back(Token{type, static_cast<Offset>(at), std::move(text), 0, 0});
    return tokens_.back();
  }

  size_t skip_space(size_t pos) const {
    while (pos < source_.size()) {
      size_t next = pos;
      if (!is_space(next_char(source_, next))) break;
      pos = next;
    }
    return pos;
  }

  /// Text before a tag, after the tag's whitespace control has taken its share.
  std::string_view strip_before(std::string_view text, char sign, bool variable) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return text;
    return strip_left(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void push_data(std::string_view text, size_t at) {
    if (!text.empty()) push(TokenType::kData, at, std::string(text));
  }

  /// Position of the next "{{", "{%" or "{#".
  size_t find_tag(size_t from) const {
    for (size_t i = source_.find('{', from); i != std::string_view::npos; i = source_.find('{', i + 1)) {
      const char c = i + 1 < source_.size() ? source_[i + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') return i;
    }
    return source_.size();
  }

  void lex_text() {
    const size_t tag = find_tag(pos_);
    const size_t begin = pos_;
    const std::string_view text = source_.substr(begin, tag - begin);
    if (tag == source_.size()) {
      push_data(text, begin);
      pos_ = tag;
      return;
    }
    const char kind = source_[tag + 1];
    pos_ = tag + 2;
    const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
    if (sign != '\0') ++pos_;
    push_data(strip_before(text, sign, kind == '{'), begin);
    line_starting_ = false;
    if (kind == '#') return lex_comment(tag);
    if (kind == '%' && lex_raw(tag)) return;
    push(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, tag);
    lex_tag(kind == '{');
  }

  void lex_comment(size_t tag) {
    const size_t close = source_.find("#}", pos_);
    if (close == std::string_view::npos) error("missing end of comment tag", tag);
    const char before = close > pos_ ? source_[close - 1] : '\0';
    pos_ = close + 2;
    finish_tag(before == '-' ? '-' : before == '+' ? '+' : '\0', true);
  }

  /// What the end of a tag swallows: all whitespace after "-", one newline when `trim`, nothing after "+".
  void finish_tag(char sign, bool trim) {
    const size_t start = pos_;
    if (sign == '-') {
      pos_ = skip_space(pos_);
    } else if (sign != '+' && trim && peek() == '\n') {
      ++pos_;
    }
    line_starting_ = pos_ > start && source_[pos_ - 1] == '\n';
  }

  /// At `pos` after "{%" and its sign: the end of `word` and "%}" when they follow. `sign` is that before
  /// "%}".
  bool match_word_tag(size_t pos, std::string_view word, bool allow_plus, size_t* end, char* sign) const {
    pos = skip_space(pos);
    if (!source_.substr(pos).starts_with(word)) return false;
    pos = skip_space(pos + word.size());
    *sign = '\0';
    if (pos < source_.size() && (source_[pos] == '-' || (allow_plus && source_[pos] == '+'))) {
      *sign = source_[pos++];
    }
    if (!source_.substr(pos).starts_with("%}")) return false;
    *end = pos + 2;
    return true;
  }

  bool lex_raw(size_t tag) {
    size_t end = 0;
    char sign = '\0';
    if (!match_word_tag(pos_, "raw", false, &end, &sign)) return false;
    pos_ = end;
    finish_tag(sign, false);
    const size_t begin = pos_;
    for (size_t i = source_.find("{%", begin); i != std::string_view::npos; i = source_.find("{%", i + 2)) {
      size_t after = i + 2;
      const char open = after < source_.size() ? source_[after] : '\0';
      const bool signed_tag = open == '-' || open == '+';
      if (!match_word_tag(signed_tag ? after + 1 : after, "endraw", true, &end, &sign)) continue;
      push_data(strip_before(source_.substr(begin, i - begin), signed_tag ? open : '\0', false), begin);
      pos_ = end;
      finish_tag(sign, true);
      return true;
    }
    error("missing end of raw block", tag);
  }

  /// Whether the tag ends here (only outside brackets); moves past the end when it does.
  bool end_tag(bool variable) {
    if (!brackets_.empty()) return false;
    const std::string_view close = variable ? "}}" : "%}";
    const char sign = peek() == '-' || (peek() == '+' && !variable) ? peek() : '\0';
    const size_t skip = sign == '\0' ? 0 : 1;
    if (!source_.substr(std::min(pos_ + skip, source_.size())).starts_with(close)) return false;
    push(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, pos_);
    pos_ += skip + 2;
    finish_tag(sign, !variable);
    return true;
  }

  void lex_tag(bool variable) {
    brackets_.clear();
    while (pos_ < source_.size()) {
      if (end_tag(variable)) return;
      lex_token();
    }
  }

  void lex_token() {
    const size_t space = skip_space(pos_);
    if (space != pos_) {
      pos_ = space;
      return;
    }
    const char c = peek();
    if (is_ascii_digit(c)) return lex_number();
    if (c == '"' || c == '\'') return lex_string(c);
    size_t end = pos_;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_word(next_char(source_, next))) break;
      end = next;
    }
    if (end != pos_) {
      push(TokenType::kName, pos_, std::string(source_.substr(pos_, end - pos_)));
      pos_ = end;
      return;
    }
    lex_operator();
  }

  void lex_operator() {
    for (std::string_view op : kOperators) {
      if (!at(op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') {
        brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        if (brackets_.empty()) error("unexpected '" + std::string(op) + "'", pos_);
        if (brackets_.back() != c) {
          error("unexpected '" + std::string(op) + "', expected '" + brackets_.back() + "'", pos_);
        }
        brackets_.pop_back();
      }
      push(TokenType::kOperator, pos_, std::string(op));
      pos_ += op.size();
      return;
    }
    error("unexpected character in a tag", pos_);
  }

  /// Digits with single underscores between them, from `pos`; the position after them.
  template <class Digit>
  size_t digits(size_t pos, Digit is_digit_char) const {
    size_t end = pos;
    while (pos < source_.size()) {
      if (is_digit_char(source_[pos])) {
        end = ++pos;
      } else if (source_[pos] == '_' && pos == end && pos + 1 < source_.size() &&
                 is_digit_char(source_[pos + 1])) {
        ++pos;
      } else {
        break;
      }
    }
    return end;
  }

  /// End of a float literal at the current position, or the position itself when there is none.
  size_t float_end() const {
    if (pos_ > 0 && source_[pos_ - 1] == '.') return pos_;
    const size_t whole = digits(pos_, is_ascii_digit);
    size_t end = whole;
    if (end + 1 < source_.size() && source_[end] == '.' && is_ascii_digit(source_[end + 1])) {
      end = digits(end + 1, is_ascii_digit);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      const size_t last = digits(exponent, is_ascii_digit);
      if (last > exponent && is_ascii_digit(source_[exponent])) end = last;
    }
    return end == whole ? pos_ : end;
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string out;
    for (char c : source_.substr(begin, end - begin)) {
      if (c != '_') out += c;
    }
    return out;
  }

  void lex_number() {
    if (const size_t end = float_end(); end > pos_) {
      const std::string text = without_underscores(pos_, end);
      push(TokenType::kFloat, pos_, text).real = std::strtod(text.c_str(), nullptr);
      pos_ = end;
      return;
    }
    int base = 10;
    size_t begin = pos_;
    const char prefix = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b')) {
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
      begin += 2;
    }
    const auto in_base = [base](char c) {
      if (base == 16) return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      return c >= '0' && c < '0' + base;
    };
    if (base != 10 && begin < source_.size() && source_[begin] == '_') ++begin;
    size_t end = digits(begin, in_base);
    if (base != 10 && end == begin) {  // "0x" without digits: the integer 0 and a name
      base = 10;
      begin = pos_;
      end = pos_ + 1;
    } else if (base == 10 && peek() == '0') {  // a decimal that starts with 0 is made of zeros
      end = digits(begin, [](char c) { return c == '0'; });
    }
    const std::string text = without_underscores(begin, end);
    Token& token = push(TokenType::kInteger, pos_, text);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), token.integer, base);
    if (parsed.ec != std::errc()) fail(Code::kUnsupported, "integer literal beyond 64 bits", token.at);
    pos_ = end;
  }

  void lex_string(char quote) {
    const size_t begin = pos_;
    size_t i = begin + 1;
    while (i < source_.size() && source_[i] != quote) i += source_[i] == '\\' ? 2 : 1;
    if (i >= source_.size()) error("unexpected character in a tag: the string does not end", begin);
    push(TokenType::kString, begin, unescape(source_.substr(begin + 1, i - begin - 1), begin));
    pos_ = i + 1;
  }

  /// Up to `count` hexadecimal digits at `pos`, all required.
  static char32_t hex_escape(std::string_view text, size_t pos, size_t count, size_t at) {
    uint32_t value = 0;
    const std::string_view hex = text.substr(std::min(pos, text.size()), count);
    const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() != count || parsed.ptr != hex.data() + hex.size() || value > 0x10FFFF) {
      error("malformed character escape in a string", at);
    }
    if (value >= 0xD800 && value < 0xE000) error("a surrogate escape is not a character", at);
    return value;
  }

  /// Python's "unicode-escape" decoding.
  static std::string unescape(std::string_view text, size_t at) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kFrom = "abfnrtv\\'\"";
      constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t k = kFrom.find(c); k != std::string_view::npos) {
        out += kTo[k];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_char(out, hex_escape(text, i + 1, count, at));
        i += count;
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        size_t n = 0;
        for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n) {
          value = value * 8 + static_cast<char32_t>(text[i + n] - '0');
        }
        append_char(out, value);
        i += n - 1;
      } else if (c == 'N') {
        fail(Code::kUnsupported, "\\N{…} escapes are not supported; write the character or \\u",
             static_cast<Offset>(at));
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  std::string_view source_;
  size_t pos_ = 0;
  bool line_starting_ = true;
  std::string brackets_;  // closing brackets still owed in this tag
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalise_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') continue;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenise(std::string_view source) { return Lexer(source).run(); }

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template text";
    case TokenType::kVariableBegin:
      return "'{{'";
    case TokenType::kVariableEnd:
      return "'}}'";
    case TokenType::kBlockBegin:
      return "'{%'";
    case TokenType::kBlockEnd:
      return "'%}'";
    case TokenType::kString:
      return "a string";
    case TokenType::kInteger:
    case TokenType::kFloat:
      return "a number";
    case TokenType::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace isthmus::jinja
