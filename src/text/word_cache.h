// Remembers, within one call of encode, which tokens a word became, so that the common words of a text are
// merged once.
//
// A word is remembered as a place in the text and its tokens as a place in the output: nothing is copied, and
// both must stay where they are (the text) or only grow (the output). A slot holds the latest word that fell
// into it. Not thread-safe; one per call.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/string_index.h"
#include "text/tokenizer.h"

namespace isthmus::tok {

class WordCache {
 public:
  /// For a text of `bytes` bytes. A short text gets no table.
  explicit WordCache(size_t bytes) {
    if (bytes >= 512) slots_.resize(std::bit_ceil(std::min<size_t>(bytes / 16, kMaxSlots)));
  }

  /// Appends the tokens of text[begin, end) to `out`: those of an equal word seen before, or what `make`
  /// appends.
  template <class Make>
  void encode(std::string_view text, size_t begin, size_t end, std::vector<TokenId>& out, const Make& make) {
    const std::string_view word = text.substr(begin, end - begin);
    if (slots_.empty() || word.size() > kMaxWord) return make(begin, end);
    const uint64_t hash = hash_bytes(word);
    Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.length == word.size() && text.substr(slot.begin, slot.length) == word) {
      const size_t size = out.size();
      out.resize(size + slot.tokens);
      std::copy_n(out.begin() + static_cast<ptrdiff_t>(slot.first), slot.tokens,
                  out.begin() + static_cast<ptrdiff_t>(size));
      return;
    }
    const size_t first = out.size();
    make(begin, end);
    slot = {begin, first, static_cast<uint32_t>(word.size()), static_cast<uint32_t>(out.size() - first)};
  }

 private:
  static constexpr size_t kMaxSlots = 8192;  // 192 KiB: stays in the second-level cache
  static constexpr size_t kMaxWord = 64;
  struct Slot {
    size_t begin = 0;
    size_t first = 0;
    uint32_t length = 0;
    uint32_t tokens = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace isthmus::tok
