// Pre-tokenizers: how a byte-level BPE vocabulary cuts text into words before merging.
//
// Each published pattern is a regular expression; here it is a scanner that walks over the characters once.
// Every scanner is linear in the text, uses no recursion and no memory of its own, and accepts any bytes: a
// byte that is not UTF-8 counts as one character of class "other", as U+FFFD would.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace isthmus::tok {

enum class PreTokenizer {
  kGpt2,     // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kSmollm,   // \p{N} isolated first, then kGpt2 on each part
  kLlama3,   // contractions in either case, runs of at most three digits, line ends kept with what precedes
  kQwen2,    // kLlama3 with single digits
  kDefault,  // punctuation runs isolated, then kGpt2, then digits in groups of three
};

/// What a `tokenizer.ggml.pre` value stands for.
struct PreTokenizerFacts {
  std::string_view name;
  PreTokenizer kind;
  bool ignore_merges;  // a word that is a token as a whole is that token, whatever the merges say
  bool adds_bos;       // when the file does not say
};

/// Facts of a name, or nullopt when it is unknown.
std::optional<PreTokenizerFacts> find_pre_tokenizer(std::string_view name);
/// Every known name, in a fixed order.
std::vector<std::string_view> pre_tokenizer_names();

/// Called with each word, in order; the words together are the text.
class WordSink {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, WordSink>)
      WordSink(F& function)  // NOLINT: implicit on purpose, like a function reference
      : object_(const_cast<void*>(static_cast<const void*>(&function))),
        call_([](void* object, size_t begin, size_t end) { (*static_cast<F*>(object))(begin, end); }) {}
  void operator()(size_t begin, size_t end) const {
    if (begin < end) call_(object_, begin, end);
  }

 private:
  void* object_;
  void (*call_)(void*, size_t, size_t);
};

/// Cuts `text` into words and hands each to `sink` as a range of bytes.
void split_words(PreTokenizer kind, std::string_view text, WordSink sink);

}  // namespace isthmus::tok
