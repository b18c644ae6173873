// What both kinds of tokenizer share: everything that a vocabulary alone decides.
//
// Derived classes encode plain text; special tokens, BOS and EOS, pieces and decoding are here. Immutable
// after construction, so any thread may use one.
#pragma once

#include <string>
#include <vector>

#include "text/special_matcher.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace isthmus::tok {

class VocabTokenizer : public Tokenizer {
 public:
  struct Settings {
    bool adds_bos = false;
    bool adds_eos = false;
    bool drops_first_space = false;  // decode() takes one space off the first token
    bool specials_strip_right = false;
    std::string name;
  };

  std::vector<TokenId> encode(std::string_view text, Specials specials, bool add_bos_eos) const final;
  std::vector<TokenId> encode_guarded(std::string_view text, std::span<const size_t> guarded) const final;
  std::string_view piece(TokenId id, bool show_special) const final;
  std::string decode(std::span<const TokenId> ids, bool show_special) const final;
  size_t vocab_size() const final { return vocab_.size(); }
  TokenKind kind(TokenId id) const final { return vocab_.has(id) ? vocab_.kind(id) : TokenKind::kUnknown; }
  std::string_view raw(TokenId id) const final {
    return vocab_.has(id) ? vocab_.raw(id) : std::string_view();
  }
  std::optional<TokenId> find(std::string_view raw) const final;
  std::optional<TokenId> bos() const final { return vocab_.bos(); }
  std::optional<TokenId> eos() const final { return vocab_.eos(); }
  bool adds_bos() const final { return settings_.adds_bos; }
  bool adds_eos() const final { return settings_.adds_eos; }
  const std::vector<TokenId>& stop_tokens() const final { return vocab_.stop_tokens(); }
  const std::vector<uint8_t>& missing_bytes() const final { return missing_bytes_; }
  std::string name() const final { return settings_.name; }

 protected:
  VocabTokenizer(Vocab vocab, Settings settings);

  const Vocab& vocab() const { return vocab_; }
  /// Appends the tokens of the plain-text fragments of `text` and the ids of the others to `out`.
  virtual void encode_fragments(std::string_view text, const std::vector<Fragment>& fragments,
                                std::vector<TokenId>& out) const = 0;

 private:
  Vocab vocab_;
  Settings settings_;
  SpecialMatcher user_defined_;  // matched in any text
  SpecialMatcher all_specials_;  // with Specials::kParse
  std::vector<uint8_t> missing_bytes_;
};

/// kCorrupt when the metadata asks for a BOS or EOS that the vocabulary does not have.
Status check_added_tokens(const Vocab& vocab, bool adds_bos, bool adds_eos);

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const VocabSpec& spec);
Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(const VocabSpec& spec);
/// Either, by spec.model; kUnsupported lists the known ones.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const VocabSpec& spec);

}  // namespace isthmus::tok
