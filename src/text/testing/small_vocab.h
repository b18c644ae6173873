// For tests and fuzzing only: vocabularies small enough to be read at a glance, owned and as the spec that
// tokenizers are made of. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/vocab.h"
#include "text/vocab_tokenizer.h"

namespace isthmus::testing {

struct SmallVocab {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::string model_name;
  std::vector<std::string> tokens;
  std::vector<int64_t> kinds;
  std::vector<float> scores;
  std::vector<std::string> merges;
  tok::VocabSpec options;  // ids and flags; the views are filled in by spec()

  TokenId add(std::string token, TokenKind kind = TokenKind::kNormal, float score = 0) {
    tokens.push_back(std::move(token));
    kinds.push_back(static_cast<int64_t>(kind));
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  /// A merge of two spellings that are there, and the token that it makes.
  TokenId merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }
  /// Views into this object, which must outlive them and stay unchanged.
  tok::VocabSpec spec() const {
    tok::VocabSpec out = options;
    out.model = model;
    out.pre = pre;
    out.model_name = model_name;
    out.tokens.assign(tokens.begin(), tokens.end());
    out.kinds = kinds;
    if (model == "llama") out.scores = scores;
    if (model == "gpt2") out.merges.assign(merges.begin(), merges.end());
    return out;
  }
  Result<std::unique_ptr<Tokenizer>> make() const { return tok::make_tokenizer(spec()); }
};

/// Byte-level BPE: the 256 bytes in order (id = byte), then "he", "ll", "hell", "hello", "Ġw", "Ġwo", "aa",
/// "aaaa".
inline SmallVocab small_bpe() {
  SmallVocab vocab;
  for (const auto& byte : tok::byte_alphabet()) vocab.add(byte);
  vocab.merge("h", "e");        // 256
  vocab.merge("l", "l");        // 257
  vocab.merge("he", "ll");      // 258
  vocab.merge("hell", "o");     // 259
  vocab.merge("\u0120", "w");   // 260
  vocab.merge("\u0120w", "o");  // 261
  vocab.merge("a", "a");        // 262
  vocab.merge("aa", "aa");      // 263
  return vocab;
}

/// SentencePiece: <unk>, <s>, </s>, the byte tokens (id = 3 + byte), then normal pieces from id 259 on.
inline SmallVocab small_spm() {
  SmallVocab vocab;
  vocab.model = "llama";
  vocab.pre = "default";
  vocab.add("<unk>", TokenKind::kUnknown);
  vocab.add("<s>", TokenKind::kControl);
  vocab.add("</s>", TokenKind::kControl);
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    vocab.add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenKind::kByte);
  }
  vocab.add("\u2581", TokenKind::kNormal, -10);   // 259
  vocab.add("a", TokenKind::kNormal, -11);        // 260
  vocab.add("b", TokenKind::kNormal, -12);        // 261
  vocab.add("ab", TokenKind::kNormal, -2);        // 262
  vocab.add("ba", TokenKind::kNormal, -1);        // 263
  vocab.add("\u2581a", TokenKind::kNormal, -3);   // 264
  vocab.add("aa", TokenKind::kNormal, -4);        // 265
  vocab.add("aaaa", TokenKind::kNormal, -5);      // 266
  vocab.add("\u2581ab", TokenKind::kNormal, -6);  // 267
  vocab.add("\u00e9", TokenKind::kNormal, -13);   // 268
  return vocab;
}

}  // namespace isthmus::testing
