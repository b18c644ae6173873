// Tokenizers under random vocabularies and random text.
//
// First byte: 0-3 a fixed vocabulary, the rest is text, and what encode() gives must come back; otherwise the
// rest describes a vocabulary (lines: kind, score, spelling; lines that hold a tab are merges) and, behind a
// line of its own, a text.
#include <cstdlib>
#include <string_view>

#include "text/testing/small_vocab.h"
#include "text/utf8.h"

namespace {

using isthmus::Specials;
using isthmus::Tokenizer;
using isthmus::testing::SmallVocab;

void require(bool condition) {
  if (!condition) std::abort();
}

SmallVocab fixed_vocab(uint8_t which) {
  SmallVocab vocab = which == 3 ? isthmus::testing::small_spm() : isthmus::testing::small_bpe();
  if (which == 3) vocab.options.add_space_prefix = false;
  if (which == 1) vocab.pre = "default";
  if (which == 2) {
    vocab.pre = "llama-bpe";
    vocab.options.add_bos = false;
  }
  vocab.add("<t>", isthmus::TokenKind::kUserDefined);
  vocab.add("<t><t>", isthmus::TokenKind::kUserDefined);
  vocab.add("<|im_end|>", isthmus::TokenKind::kControl);
  return vocab;
}

bool is_utf8(std::string_view text) {
  std::string mended;
  isthmus::tok::utf8_mend(text, true, mended);
  return mended == text;
}

void round_trip(uint8_t which, std::string_view text) {
  static const auto tokenizers = [] {
    std::vector<std::unique_ptr<Tokenizer>> out;
    for (uint8_t i = 0; i < 4; ++i) out.push_back(fixed_vocab(i).make().value());
    return out;
  }();
  const Tokenizer& tokenizer = *tokenizers[which];
  for (const auto specials : {Specials::kAsText, Specials::kParse}) {
    const auto ids = tokenizer.encode(text, specials, false);
    for (const auto id : ids) {
      require(id >= 0 && static_cast<size_t>(id) < tokenizer.vocab_size());
      require(specials == Specials::kParse || tokenizer.kind(id) != isthmus::TokenKind::kControl);
    }
    // SentencePiece's written space cannot be told from a space, nor a cut character from what follows it.
    const bool exact = which != 3 || (is_utf8(text) && text.find("\xE2\x96\x81") == std::string_view::npos);
    if (exact) require(tokenizer.decode(ids, true) == text);
  }
}

std::string_view take_line(std::string_view& data) {
  const size_t end = std::min(data.find('\n'), data.size());
  const std::string_view line = data.substr(0, end);
  data.remove_prefix(std::min(end + 1, data.size()));
  return line;
}

void random_vocab(uint8_t flags, std::string_view data) {
  SmallVocab vocab;
  vocab.model = (flags & 1) != 0 ? "llama" : "gpt2";
  constexpr const char* kPre[] = {"gpt-2", "smollm", "qwen2", "llama-bpe", "default", "?", "", "gpt-2"};
  vocab.pre = kPre[flags >> 1 & 7];
  if ((flags & 16) != 0) vocab.model_name = "phi-3";
  if ((flags & 32) != 0) vocab.options.add_bos = vocab.options.add_eos = true;
  while (!data.empty()) {
    const std::string_view line = take_line(data);
    if (line.empty()) break;
    if (const size_t tab = line.find('\t'); tab != std::string_view::npos) {
      vocab.merges.push_back(std::string(line.substr(0, tab)) + " " + std::string(line.substr(tab + 1)));
    } else if (line.size() > 1) {
      vocab.add(std::string(line.substr(2)), isthmus::TokenKind::kNormal, static_cast<float>(line[1]));
      vocab.kinds.back() = line[0] - '0';
    }
  }
  if ((flags & 64) != 0) vocab.options.bos = vocab.options.eos = data.size();
  if ((flags & 128) != 0) vocab.options.unknown = 0;
  const auto tokenizer = vocab.make();
  if (!tokenizer.ok()) {
    require(!tokenizer.status().message().empty());
    return;
  }
  for (const auto specials : {Specials::kAsText, Specials::kParse}) {
    const auto ids = (*tokenizer)->encode(data, specials, true);
    const std::string text = (*tokenizer)->decode(ids, true);
    require(text.size() <= ids.size() * (data.size() + 4096) + 4096);
    for (const auto id : ids) require(id >= 0 && static_cast<size_t>(id) < (*tokenizer)->vocab_size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 2) return 0;
  const std::string_view data(reinterpret_cast<const char*>(bytes), size);
  if (bytes[0] < 4) {
    round_trip(bytes[0], data.substr(1));
  } else {
    random_vocab(bytes[1], data.substr(2));
  }
  return 0;
}
