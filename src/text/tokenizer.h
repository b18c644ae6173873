// Tokenizers built from a GGUF's metadata: byte-level BPE and SentencePiece BPE.
//
// A Tokenizer is immutable and may be used from any thread. Token ids are indices into the vocabulary.
// Special tokens (control and user-defined ones) are recognised in the text only when the caller asks:
// content written by a user is always encoded with special == kAsText, so that it can never forge a turn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace isthmus {

class GgufFile;

using TokenId = int32_t;

enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

enum class Specials {
  kAsText,  // "<|im_end|>" in the text is ten ordinary characters
  kParse,   // it is the token of that name
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Builds the tokenizer that `tokenizer.ggml.model` and `tokenizer.ggml.pre` name. kUnsupported lists the
  /// known ones.
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const GgufFile& file);
  /// Memory that from_gguf()'s result will hold, from the sizes in the file's header; 0 without a vocabulary.
  static uint64_t memory_bytes(const GgufFile& file);

  /// Ids of `text`. `add_bos_eos` adds what the model's metadata says it wants (add_bos_token,
  /// add_eos_token). Any bytes are accepted; invalid UTF-8 is encoded byte by byte. Time is linear in the
  /// text, times the logarithm of its longest word.
  virtual std::vector<TokenId> encode(std::string_view text, Specials specials, bool add_bos_eos) const = 0;

  /// As encode(text, Specials::kParse, false), except that no special token is recognised across one of the
  /// `guarded` places: byte offsets into text, ascending. A chat template's markers are tokens; the same
  /// spelling inside a message, with a guarded place inside it, stays text.
  virtual std::vector<TokenId> encode_guarded(std::string_view text,
                                              std::span<const size_t> guarded) const = 0;

  /// The bytes of one token: what it adds to the text. Control tokens give their name only when
  /// `show_special`.
  virtual std::string_view piece(TokenId id, bool show_special) const = 0;

  /// Text of a whole sequence, as the reference detokenizer gives it (leading-space rule included).
  virtual std::string decode(std::span<const TokenId> ids, bool show_special) const = 0;

  virtual size_t vocab_size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  /// The vocabulary's own spelling of the token (before byte decoding).
  virtual std::string_view raw(TokenId id) const = 0;
  /// The id of a token by its spelling in the vocabulary.
  virtual std::optional<TokenId> find(std::string_view raw) const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  /// Every token that ends a generation: EOS, EOT, EOM and the known end-of-turn spellings.
  virtual const std::vector<TokenId>& stop_tokens() const = 0;
  /// Byte values that the vocabulary cannot express. encode() leaves them out, as the reference does; empty
  /// for most models.
  virtual const std::vector<uint8_t>& missing_bytes() const = 0;
  /// "gpt2/smollm", "llama/spm": for show and for identity keys.
  virtual std::string name() const = 0;
};

/// Turns token ids into text piece by piece and never emits a broken UTF-8 sequence: bytes of an unfinished
/// character wait for the next token; bytes that can never become valid come out as U+FFFD. One per stream;
/// not thread-safe.
class StreamDecoder {
 public:
  /// `tokenizer` must outlive the decoder. `at_start`: the next token is the first of a text (leading-space
  /// rule).
  explicit StreamDecoder(const Tokenizer& tokenizer, bool show_special = false, bool at_start = false);
  /// Text that became complete with this token; may be empty.
  std::string push(TokenId id);
  /// What is left at the end of the stream: pending bytes as U+FFFD.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
  bool show_special_;
  bool at_start_;
};

}  // namespace isthmus
