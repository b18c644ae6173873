// The vocabulary of a tokenizer: spellings, kinds, pieces, special ids and stop tokens, checked and owned.
//
// VocabSpec is what a GGUF's metadata says, as views into the file; Vocab is the checked copy that tokenizers
// keep. Everything in a spec is untrusted: a wrong count, id, kind, byte token or a spelling used twice is
// kCorrupt and the message names the key. A Vocab is immutable and may be used from any thread.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/string_index.h"
#include "text/tokenizer.h"

namespace isthmus {
class GgufFile;
}

namespace isthmus::tok {

constexpr size_t kMaxTokens = size_t{1} << 24;

struct VocabSpec {
  std::string_view model;       // tokenizer.ggml.model: "gpt2" or "llama"
  std::string_view pre;         // tokenizer.ggml.pre; empty when absent
  std::string_view model_name;  // general.name
  std::vector<std::string_view> tokens;
  std::vector<int64_t> kinds;            // empty: all normal
  std::vector<float> scores;             // SentencePiece only
  std::vector<std::string_view> merges;  // byte-level BPE only
  std::optional<uint64_t> bos, eos, eot, eom, unknown, fim_prefix, fim_suffix, fim_middle, fim_pad, fim_repo,
      fim_sep;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

/// Reads the keys tokenizer.ggml.*; kNotFound names a missing key.
Result<VocabSpec> read_vocab_spec(const GgufFile& file);

/// Strings in one buffer, by number.
class StringTable {
 public:
  void reserve(size_t strings, size_t bytes);
  void add(std::string_view text);
  size_t size() const { return ends_.size() - 1; }
  size_t bytes() const { return bytes_.size(); }
  std::string_view operator[](size_t i) const {
    return std::string_view(bytes_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_{0};
};

class Vocab {
 public:
  static Result<Vocab> create(const VocabSpec& spec);

  size_t size() const { return kinds_.size(); }
  bool has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < kinds_.size(); }
  // The next three take ids of the vocabulary only.
  std::string_view raw(TokenId id) const { return raw_[static_cast<size_t>(id)]; }
  std::string_view piece(TokenId id) const { return pieces_[static_cast<size_t>(id)]; }
  TokenKind kind(TokenId id) const { return kinds_[static_cast<size_t>(id)]; }
  bool is_special(TokenId id) const {
    return kind(id) == TokenKind::kControl || kind(id) == TokenKind::kUnknown;
  }
  /// The id of a spelling, or -1.
  TokenId find(std::string_view raw) const { return index_.find(raw, raw_); }
  /// The same in two steps, so that many look-ups can wait for memory together: prefetch() all, then find().
  void prefetch(uint64_t hash) const { index_.prefetch(hash); }
  TokenId find(std::string_view raw, uint64_t hash) const { return index_.find(raw, hash, raw_); }
  /// The same among tokens that ordinary text may become: no control, unknown or byte token.
  TokenId find_text(std::string_view raw) const {
    const TokenId id = find(raw);
    return id < 0 || is_special(id) || kind(id) == TokenKind::kByte ? -1 : id;
  }
  size_t max_raw_bytes() const { return max_raw_bytes_; }
  /// Token of each byte value, or -1; for SentencePiece the byte tokens, for BPE the byte alphabet.
  const std::array<TokenId, 256>& byte_tokens() const { return byte_tokens_; }

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  std::optional<TokenId> unknown() const { return unknown_; }
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }

 private:
  Vocab() = default;
  Status read_tokens(const VocabSpec& spec);
  Status read_kinds(const VocabSpec& spec);
  Status read_special_ids(const VocabSpec& spec);
  void find_stop_tokens(const VocabSpec& spec);
  Status read_byte_tokens(bool sentencepiece);
  void build_pieces(bool sentencepiece);
  void make_control(TokenId id);

  StringTable raw_;
  StringTable pieces_;
  std::vector<TokenKind> kinds_;
  StringIndex index_;
  std::array<TokenId, 256> byte_tokens_{};
  std::optional<TokenId> bos_, eos_, unknown_;
  std::vector<TokenId> stop_tokens_;  // ascending
  size_t max_raw_bytes_ = 0;
};

/// GPT-2's byte alphabet: each byte value as one printable character (Radford et al. 2019, encoder.py).
const std::array<std::string, 256>& byte_alphabet();
/// The byte that a character of the alphabet stands for, or -1.
int byte_of_alphabet(uint32_t code_point);
/// `bytes` in the byte alphabet.
std::string to_byte_alphabet(std::string_view bytes);

}  // namespace isthmus::tok
