#include "text/pre_tokenizer.h"

#include <array>

#include "text/unicode_class.h"
#include "text/utf8.h"

namespace isthmus::tok {
namespace {

constexpr PreTokenizerFacts kFacts[] = {
    {"default", PreTokenizer::kDefault, false, false},
    {"gpt-2", PreTokenizer::kGpt2, false, false},
    {"phi-2", PreTokenizer::kGpt2, false, false},
    {"olmo", PreTokenizer::kGpt2, false, false},
    {"mpt", PreTokenizer::kGpt2, false, false},
    {"exaone4", PreTokenizer::kGpt2, false, false},
    {"smollm", PreTokenizer::kSmollm, false, false},
    {"starcoder", PreTokenizer::kSmollm, false, false},
    {"refact", PreTokenizer::kSmollm, false, false},
    {"command-r", PreTokenizer::kSmollm, false, false},
    {"qwen2", PreTokenizer::kQwen2, false, false},
    {"deepseek-r1-qwen", PreTokenizer::kQwen2, false, false},
    {"stablelm2", PreTokenizer::kQwen2, false, false},
    {"llama-bpe", PreTokenizer::kLlama3, true, true},
    {"llama3", PreTokenizer::kLlama3, true, true},
    {"llama-v3", PreTokenizer::kLlama3, true, true},
    {"falcon3", PreTokenizer::kLlama3, true, true},
    {"dbrx", PreTokenizer::kLlama3, false, false},
    {"smaug-bpe", PreTokenizer::kLlama3, false, false},
};

// A character of the text being scanned; past the end of the part its length is 0.
struct Char {
  uint32_t code_point = 0xFFFFFFFF;
  uint32_t length = 0;
  CharClass cls = CharClass::kOther;

  bool letter() const { return cls == CharClass::kLetter; }
  bool number() const { return cls == CharClass::kNumber; }
  bool space() const { return cls == CharClass::kSpace; }
  bool none() const { return length == 0; }
  // [^\s\p{L}\p{N}]
  bool other() const { return !none() && !letter() && !number() && !space(); }
  bool line_end() const { return code_point == '\n' || code_point == '\r'; }
};

// A part of the text, seen as characters. Patterns never look outside it.
class Part {
 public:
  Part(std::string_view text, const UnicodeTable& table) : text_(text), table_(table) {}

  size_t size() const { return text_.size(); }
  Char at(size_t pos) const {
    if (pos >= text_.size()) return {};
    const auto byte = static_cast<uint8_t>(text_[pos]);
    if (byte < 0x80) return {byte, 1, table_.of(byte)};
    const Utf8Char c = utf8_at(text_, pos);
    return {c.code_point, c.length, table_.of(c.code_point)};
  }
  // The end of the longest run from `pos` on whose characters all satisfy `wanted`.
  template <class Wanted>
  size_t run(size_t pos, Wanted wanted) const {
    for (Char c = at(pos); !c.none() && wanted(c); c = at(pos)) pos += c.length;
    return pos;
  }
  // Length of an English contraction at `pos`, which holds an apostrophe; 0 when there is none.
  size_t contraction(size_t pos, bool any_case) const {
    const auto letter = [&](size_t i) -> char {
      if (i >= text_.size()) return '\0';
      const char c = text_[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char a = letter(pos + 1);
    const char b = letter(pos + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
  }

 private:
  std::string_view text_;
  const UnicodeTable& table_;
};

// \s+(?!\S)|\s+ at `pos`: a run of white space leaves its last character to the word that follows.
size_t space_run(const Part& part, size_t pos) {
  size_t last = pos;
  size_t end = pos;
  for (Char c = part.at(end); c.space(); c = part.at(end)) {
    last = end;
    end += c.length;
  }
  return last > pos && end < part.size() ? last : end;
}

// The end of the word that starts at `pos` (< part.size()).
size_t gpt2_word(const Part& part, size_t pos) {
  const Char first = part.at(pos);
  if (first.code_point == '\'') {
    if (const size_t length = part.contraction(pos, false)) return pos + length;
  }
  const size_t start = first.code_point == ' ' ? pos + 1 : pos;
  const Char c = first.code_point == ' ' ? part.at(start) : first;
  if (c.letter()) return part.run(start, [](const Char& x) { return x.letter(); });
  if (c.number()) return part.run(start, [](const Char& x) { return x.number(); });
  if (c.other()) return part.run(start, [](const Char& x) { return x.other(); });
  return space_run(part, pos);
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at `pos`: a run that holds line ends stops after the last of them.
size_t space_run_with_line_ends(const Part& part, size_t pos) {
  size_t last = pos;
  size_t end = pos;
  size_t after_line_end = pos;
  for (Char c = part.at(end); c.space(); c = part.at(end)) {
    last = end;
    end += c.length;
    if (c.line_end()) after_line_end = end;
  }
  if (after_line_end > pos) return after_line_end;
  return last > pos && end < part.size() ? last : end;
}

// Llama 3's pattern; Qwen 2's has `max_digits` 1 in place of 3.
size_t llama3_word(const Part& part, size_t pos, size_t max_digits) {
  const Char first = part.at(pos);
  if (first.code_point == '\'') {
    if (const size_t length = part.contraction(pos, true)) return pos + length;
  }
  const auto is_letter = [](const Char& x) { return x.letter(); };
  if (first.letter()) return part.run(pos, is_letter);
  const size_t second = pos + first.length;
  if (!first.line_end() && !first.number() && part.at(second).letter()) return part.run(second, is_letter);
  if (first.number()) {
    size_t count = 0;
    return part.run(pos, [&](const Char& x) { return x.number() && count++ < max_digits; });
  }
  const size_t start = first.code_point == ' ' ? second : pos;
  if (part.at(start).other()) {
    const size_t end = part.run(start, [](const Char& x) { return x.other(); });
    return part.run(end, [](const Char& x) { return x.line_end(); });
  }
  return space_run_with_line_ends(part, pos);
}

// Splits [begin, end) of the text by `word`, a function from a part and a position to the word's end.
template <class Word>
void split_part(std::string_view text, size_t begin, size_t end, const UnicodeTable& table, WordSink sink,
                Word word) {
  const Part part(text.substr(begin, end - begin), table);
  for (size_t pos = 0; pos < part.size();) {
    const size_t stop = word(part, pos);
    sink(begin + pos, begin + stop);
    pos = stop;
  }
}

// Isolates each number character, then applies GPT-2's pattern to what lies between.
void split_smollm(std::string_view text, const UnicodeTable& table, WordSink sink) {
  const Part whole(text, table);
  for (size_t pos = 0; pos < whole.size();) {
    const Char c = whole.at(pos);
    size_t end = pos + c.length;
    if (c.number()) {
      sink(pos, end);
    } else {
      end = whole.run(end, [](const Char& x) { return !x.number(); });
      split_part(text, pos, end, table, sink, gpt2_word);
    }
    pos = end;
  }
}

// [0-9][0-9][0-9] isolated, from the left; only ASCII digits count.
void split_digit_triples(std::string_view text, size_t begin, size_t end, WordSink sink) {
  size_t rest = begin;
  size_t digits = 0;
  for (size_t pos = begin; pos < end; ++pos) {
    digits = text[pos] >= '0' && text[pos] <= '9' ? digits + 1 : 0;
    if (digits < 3) continue;
    sink(rest, pos - 2);
    sink(pos - 2, pos + 1);
    rest = pos + 1;
    digits = 0;
  }
  sink(rest, end);
}

// [\p{P}$+<=>^~|]
bool default_punctuation(const Char& c) {
  constexpr std::string_view kSymbols = "$+<=>^~|";
  if (c.none()) return false;
  return c.cls == CharClass::kPunctuation ||
         (c.code_point < 0x80 && kSymbols.find(static_cast<char>(c.code_point)) != std::string_view::npos);
}

void split_default(std::string_view text, const UnicodeTable& table, WordSink sink) {
  const Part whole(text, table);
  const auto number_last = [&](size_t begin, size_t end) {
    // A word of GPT-2's pattern with numbers in it is a run of them, maybe behind one space.
    const size_t numbers = text[begin] == ' ' && end - begin > 1 ? begin + 1 : begin;
    if (whole.at(numbers).number()) {
      sink(begin, numbers);
      split_digit_triples(text, numbers, end, sink);
    } else {
      sink(begin, end);
    }
  };
  const WordSink numbers_sink(number_last);
  for (size_t pos = 0; pos < whole.size();) {
    size_t end = whole.run(pos, default_punctuation);
    if (end > pos) {
      sink(pos, end);
    } else {
      end = whole.run(pos, [](const Char& x) { return !default_punctuation(x); });
      split_part(text, pos, end, table, numbers_sink, gpt2_word);
    }
    pos = end;
  }
}

}  // namespace

std::optional<PreTokenizerFacts> find_pre_tokenizer(std::string_view name) {
  for (const auto& facts : kFacts) {
    if (facts.name == name) return facts;
  }
  return std::nullopt;
}

std::vector<std::string_view> pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const auto& facts : kFacts) names.push_back(facts.name);
  return names;
}

void split_words(PreTokenizer kind, std::string_view text, WordSink sink) {
  const UnicodeTable& table = UnicodeTable::get();
  switch (kind) {
    case PreTokenizer::kGpt2:
      return split_part(text, 0, text.size(), table, sink, gpt2_word);
    case PreTokenizer::kSmollm:
      return split_smollm(text, table, sink);
    case PreTokenizer::kLlama3:
      return split_part(text, 0, text.size(), table, sink,
                        [](const Part& part, size_t pos) { return llama3_word(part, pos, 3); });
    case PreTokenizer::kQwen2:
      return split_part(text, 0, text.size(), table, sink,
                        [](const Part& part, size_t pos) { return llama3_word(part, pos, 1); });
    case PreTokenizer::kDefault:
      return split_default(text, table, sink);
  }
}

}  // namespace isthmus::tok
