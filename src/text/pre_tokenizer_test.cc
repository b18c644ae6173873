#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "text/unicode_class.h"

namespace isthmus::tok {
namespace {

using ::testing::ElementsAre;
constexpr PreTokenizer kAll[] = {PreTokenizer::kGpt2, PreTokenizer::kSmollm, PreTokenizer::kLlama3,
                                 PreTokenizer::kQwen2, PreTokenizer::kDefault};

std::vector<std::string> words(PreTokenizer kind, std::string_view text) {
  std::vector<std::string> out;
  const auto sink = [&](size_t begin, size_t end) { out.emplace_back(text.substr(begin, end - begin)); };
  split_words(kind, text, sink);
  return out;
}

TEST(UnicodeClass, Examples) {
  const UnicodeTable& table = UnicodeTable::get();
  EXPECT_EQ(table.of('a'), CharClass::kLetter);
  EXPECT_EQ(table.of('7'), CharClass::kNumber);
  EXPECT_EQ(table.of(' '), CharClass::kSpace);
  EXPECT_EQ(table.of(0x85), CharClass::kSpace);
  EXPECT_EQ(table.of('!'), CharClass::kPunctuation);
  EXPECT_EQ(table.of('+'), CharClass::kOther);
  EXPECT_EQ(table.of(0x4E2D), CharClass::kLetter);
  EXPECT_EQ(table.of(0x2EBF0), CharClass::kLetter);  // CJK extension I, new in Unicode 15.1
  EXPECT_EQ(table.of(0x0665), CharClass::kNumber);
  EXPECT_EQ(table.of(0x301), CharClass::kOther);  // a combining mark
  EXPECT_EQ(table.of(0x1F600), CharClass::kOther);
  EXPECT_EQ(table.of(0x10FFFF), CharClass::kOther);
  EXPECT_EQ(table.of(0x110000), CharClass::kOther);
  EXPECT_EQ(table.of(0xFFFFFFFF), CharClass::kOther);
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_THAT(words(PreTokenizer::kGpt2, "I'm here,  don't 'RE 1234 x"),
              ElementsAre("I", "'m", " here", ",", " ", " don", "'t", " '", "RE", " 1234", " x"));
  EXPECT_THAT(words(PreTokenizer::kGpt2, "a\n\n b\t\tc \t"),
              ElementsAre("a", "\n\n", " b", "\t", "\t", "c", " \t"));
  EXPECT_THAT(words(PreTokenizer::kGpt2, " \u00e9t\u00e9\u0301!"), ElementsAre(" \u00e9t\u00e9", "\u0301!"));
  EXPECT_THAT(words(PreTokenizer::kGpt2, "'"), ElementsAre("'"));
  EXPECT_THAT(words(PreTokenizer::kGpt2, "'l"), ElementsAre("'", "l"));
}

TEST(PreTokenizer, SmollmIsolatesDigits) {
  EXPECT_THAT(words(PreTokenizer::kSmollm, "in 1984, x2  3"),
              ElementsAre("in", " ", "1", "9", "8", "4", ",", " x", "2", "  ", "3"));
}

TEST(PreTokenizer, Llama3) {
  EXPECT_THAT(words(PreTokenizer::kLlama3, "I'M 1234567 (foo)\n\n  bar"),
              ElementsAre("I", "'M", " ", "123", "456", "7", " (", "foo", ")\n\n", " ", " bar"));
  EXPECT_THAT(words(PreTokenizer::kLlama3, "a \r\n \n  x"), ElementsAre("a", " \r\n \n", " ", " x"));
  EXPECT_THAT(words(PreTokenizer::kLlama3, "\tx\n\ty"), ElementsAre("\tx", "\n", "\ty"));
}

TEST(PreTokenizer, Qwen2TakesDigitsOneByOne) {
  EXPECT_THAT(words(PreTokenizer::kQwen2, "x12'LL"), ElementsAre("x", "1", "2", "'LL"));
}

TEST(PreTokenizer, Default) {
  EXPECT_THAT(words(PreTokenizer::kDefault, "it's 12345 +-= `x`"),
              ElementsAre("it", "'", "s", " ", "123", "45", " ", "+-=", " `", "x", "`"));
  EXPECT_THAT(words(PreTokenizer::kDefault, "12\u06633456"), ElementsAre("12\u0663", "345", "6"));
}

TEST(PreTokenizer, WordsAreTheTextWhateverTheBytes) {
  Rng rng(7);
  constexpr std::string_view kPieces[] = {"a", "B",   " ",    "\n",       "\r",           "'",
                                          "s", "'ll", "1",    "\xC3\xA9", "\xE2\x80\xA8", "\xF0\x9F\x98\x80",
                                          ".", "+",   "\xFF", "\xE2\x80", "\xC3",         "\t"};
  for (int turn = 0; turn < 3000; ++turn) {
    std::string text;
    for (size_t i = rng.below(30); i > 0; --i) text += kPieces[rng.below(std::size(kPieces))];
    for (const auto kind : kAll) {
      std::string joined;
      for (const auto& word : words(kind, text)) joined += word;
      ASSERT_EQ(joined, text);
    }
  }
}

TEST(PreTokenizer, NamesAreFoundAndListed) {
  for (const auto name : pre_tokenizer_names()) EXPECT_TRUE(find_pre_tokenizer(name).has_value());
  EXPECT_FALSE(find_pre_tokenizer("gpt-5").has_value());
  EXPECT_TRUE(find_pre_tokenizer("llama-bpe")->ignore_merges);
  EXPECT_FALSE(find_pre_tokenizer("qwen2")->ignore_merges);
}

}  // namespace
}  // namespace isthmus::tok
