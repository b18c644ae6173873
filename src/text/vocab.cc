#include "text/vocab.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "text/utf8.h"

namespace isthmus::tok {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's written space

// Spellings that end a generation in every vocabulary that has them.
constexpr std::string_view kStopSpellings[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "[e~[",
};

// Fill-in-the-middle tokens that a file does not declare are known by their spelling. Pad, repository and
// file separator end a generation too: what follows them is another document.
struct FimSpellings {
  std::optional<uint64_t> VocabSpec::*declared;
  bool stops;
  std::array<std::string_view, 8> spellings;
};
constexpr FimSpellings kFim[] = {
    {&VocabSpec::fim_prefix,
     false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uFF5Cfim\u2581begin\uFF5C>", "<PRE>",
      "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    {&VocabSpec::fim_suffix,
     false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uFF5Cfim\u2581hole\uFF5C>", "<SUF>", "\u2581<SUF>",
      "<|code_suffix|>", "<|suffix|>"}},
    {&VocabSpec::fim_middle,
     false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uFF5Cfim\u2581end\uFF5C>", "<MID>", "\u2581<MID>",
      "<|code_middle|>", "<|middle|>"}},
    {&VocabSpec::fim_pad, true, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {&VocabSpec::fim_repo, true, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {&VocabSpec::fim_sep, true, {"<|file_sep|>"}},
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The value of a byte token, spelt exactly "<0xHH>"; -1 for anything else.
int byte_token_value(std::string_view raw) {
  if (raw.size() != 6 || raw.substr(0, 3) != "<0x" || raw[5] != '>') return -1;
  const int high = hex_digit(raw[3]);
  const int low = hex_digit(raw[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Untrusted text for an error message: printable ASCII, at most 40 characters.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 40)) out += c >= ' ' && c < 0x7F ? c : '?';
  return out + (text.size() > 40 ? "...'" : "'");
}

Status wrong_count(std::string_view key, size_t got, size_t want) {
  return corrupt(std::string(key) + " has " + std::to_string(got) + " entries for " + std::to_string(want) +
                 " tokens");
}

// The text of a token in the byte alphabet; a token with other characters stands for itself.
void decode_byte_alphabet(std::string_view raw, std::string& out) {
  out.clear();
  for (size_t pos = 0; pos < raw.size();) {
    if (raw[pos] > ' ' && raw[pos] < 0x7F) {  // printable ASCII is itself
      out += raw[pos++];
      continue;
    }
    const Utf8Char c = utf8_at(raw, pos);
    const int byte = c.valid ? byte_of_alphabet(c.code_point) : -1;
    if (byte < 0) {
      out = raw;
      return;
    }
    out += static_cast<char>(byte);
    pos += c.length;
  }
}

void unescape_spaces(std::string_view raw, std::string& out) {
  out.clear();
  for (size_t pos = 0; pos < raw.size();) {
    const bool mark = raw.substr(pos, kSpaceMark.size()) == kSpaceMark;
    out += mark ? ' ' : raw[pos];
    pos += mark ? kSpaceMark.size() : 1;
  }
}

}  // namespace

void StringTable::reserve(size_t strings, size_t bytes) {
  ends_.reserve(strings + 1);
  bytes_.reserve(bytes);
}

void StringTable::add(std::string_view text) {
  bytes_ += text;
  ends_.push_back(bytes_.size());
}

const std::array<std::string, 256>& byte_alphabet() {
  static const auto alphabet = [] {
    std::array<std::string, 256> out;
    uint32_t next =
        256;  // bytes that are not printable in Latin-1 take the code points from 256 on, in order
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      utf8_append(printable ? byte : next++, out[byte]);
    }
    return out;
  }();
  return alphabet;
}

int byte_of_alphabet(uint32_t code_point) {
  static const auto bytes = [] {
    std::array<int, 324> out;
    out.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      out[utf8_at(byte_alphabet()[static_cast<size_t>(byte)], 0).code_point] = byte;
    }
    return out;
  }();
  return code_point < bytes.size() ? bytes[code_point] : -1;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += byte_alphabet()[static_cast<uint8_t>(byte)];
  return out;
}

Result<Vocab> Vocab::create(const VocabSpec& spec) {
  Vocab vocab;
  const bool sentencepiece = spec.model == "llama";
  ISTHMUS_RETURN_IF_ERROR(vocab.read_tokens(spec));
  ISTHMUS_RETURN_IF_ERROR(vocab.read_kinds(spec));
  ISTHMUS_RETURN_IF_ERROR(vocab.read_special_ids(spec));
  vocab.find_stop_tokens(spec);
  ISTHMUS_RETURN_IF_ERROR(vocab.read_byte_tokens(sentencepiece));
  vocab.build_pieces(sentencepiece);
  return vocab;
}

Status Vocab::read_tokens(const VocabSpec& spec) {
  if (spec.tokens.empty() || spec.tokens.size() > kMaxTokens) {
    return corrupt("tokenizer.ggml.tokens has " + std::to_string(spec.tokens.size()) + " entries; 1 to " +
                   std::to_string(kMaxTokens) + " are possible");
  }
  size_t bytes = 0;
  for (const auto& token : spec.tokens) bytes += token.size();
  raw_.reserve(spec.tokens.size(), bytes);
  index_.reset(spec.tokens.size());
  for (uint32_t id = 0; id < spec.tokens.size(); ++id) {
    // An empty spelling gets a name of its own, as in the reference, so that spellings stay distinct.
    raw_.add(spec.tokens[id].empty() ? "[EMPTY_" + std::to_string(id) + "]" : spec.tokens[id]);
    max_raw_bytes_ = std::max(max_raw_bytes_, raw_[id].size());
    switch (index_.add(id, raw_)) {
      case StringIndex::Added::kNew:
        break;
      case StringIndex::Added::kTwice:
        return corrupt("tokenizer.ggml.tokens: token " + std::to_string(id) + " " + quoted(raw_[id]) +
                       " is there a second time");
      case StringIndex::Added::kTooManyCollisions:
        return corrupt("tokenizer.ggml.tokens: spellings made to collide");
    }
  }
  return ok_status();
}

Status Vocab::read_kinds(const VocabSpec& spec) {
  kinds_.assign(spec.tokens.size(), TokenKind::kNormal);
  if (spec.kinds.empty()) return ok_status();
  if (spec.kinds.size() != kinds_.size()) {
    return wrong_count("tokenizer.ggml.token_type", spec.kinds.size(), kinds_.size());
  }
  for (size_t id = 0; id < kinds_.size(); ++id) {
    const int64_t kind = spec.kinds[id];
    if (kind < 0 || kind > 6) {
      return corrupt("tokenizer.ggml.token_type: token " + std::to_string(id) + " has type " +
                     std::to_string(kind) + "; 0 to 6 are possible");
    }
    kinds_[id] = kind == 0 ? TokenKind::kUnused : static_cast<TokenKind>(kind);
  }
  return ok_status();
}

Status Vocab::read_special_ids(const VocabSpec& spec) {
  const auto checked = [&](const std::optional<uint64_t>& id, const char* what,
                           std::optional<TokenId>& out) -> Status {
    if (id && *id >= size()) {
      return corrupt(std::string(what) + " token id " + std::to_string(*id) +
                     " is outside the vocabulary of " + std::to_string(size()));
    }
    if (id) out = static_cast<TokenId>(*id);
    return ok_status();
  };
  ISTHMUS_RETURN_IF_ERROR(checked(spec.bos, "bos", bos_));
  ISTHMUS_RETURN_IF_ERROR(checked(spec.eos, "eos", eos_));
  ISTHMUS_RETURN_IF_ERROR(checked(spec.unknown, "unknown", unknown_));
  std::optional<TokenId> unused;
  for (const auto& id : {spec.eot, spec.eom, spec.fim_prefix, spec.fim_suffix, spec.fim_middle, spec.fim_pad,
                         spec.fim_repo, spec.fim_sep}) {
    ISTHMUS_RETURN_IF_ERROR(checked(id, "special", unused));
  }
  if (spec.model != "llama") return ok_status();
  // Llama's own numbering, for files that leave it out; believed only where the token is of that kind.
  if (!unknown_ && kind(0) == TokenKind::kUnknown) unknown_ = 0;
  if (!bos_ && size() > 1 && kind(1) == TokenKind::kControl) bos_ = 1;
  if (!eos_ && size() > 2 && kind(2) == TokenKind::kControl) eos_ = 2;
  return ok_status();
}

void Vocab::make_control(TokenId id) { kinds_[static_cast<size_t>(id)] = TokenKind::kControl; }

void Vocab::find_stop_tokens(const VocabSpec& spec) {
  std::set<TokenId> stops;
  for (const auto& fim : kFim) {
    TokenId id = spec.*fim.declared ? static_cast<TokenId>(*(spec.*fim.declared)) : -1;
    for (size_t i = 0; id < 0 && i < fim.spellings.size() && !fim.spellings[i].empty(); ++i) {
      id = find(fim.spellings[i]);
      if (id >= 0) make_control(id);
    }
    if (id >= 0 && fim.stops) stops.insert(id);
  }
  for (const auto spelling : kStopSpellings) {
    const TokenId id = find(spelling);
    if (id < 0) continue;
    stops.insert(id);
    make_control(id);
  }
  for (const auto& id : {spec.eot, spec.eom}) {
    if (id) stops.insert(static_cast<TokenId>(*id));
  }
  if (eos_) stops.insert(*eos_);
  // The harmony format's framing is shown, and there "<|end|>" ends a message, not the answer.
  for (const auto spelling : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
    const TokenId id = find(spelling);
    if (id >= 0) kinds_[static_cast<size_t>(id)] = TokenKind::kUserDefined;
  }
  const auto stops_at = [&](std::string_view spelling) { return stops.count(find(spelling)) > 0; };
  const bool calls = stops_at("<|call|>") || stops_at("<|calls|>");
  if (calls && stops_at("<|end|>") && (stops_at("<|return|>") || stops_at("<|flush|>"))) {
    stops.erase(find("<|end|>"));
    kinds_[static_cast<size_t>(find("<|end|>"))] = TokenKind::kUserDefined;
  }
  if (stops_at("<|tool_response>") && stops_at("</s>")) {  // a vocabulary in which </s> is only HTML
    stops.erase(find("</s>"));
    kinds_[static_cast<size_t>(find("</s>"))] = TokenKind::kNormal;
  }
  stop_tokens_.assign(stops.begin(), stops.end());
}

Status Vocab::read_byte_tokens(bool sentencepiece) {
  byte_tokens_.fill(-1);
  for (TokenId id = 0; has(id); ++id) {
    if (kind(id) != TokenKind::kByte) continue;
    const int value = byte_token_value(raw(id));
    if (value < 0) {
      return corrupt("tokenizer.ggml.tokens: byte token " + std::to_string(id) + " is " + quoted(raw(id)) +
                     "; '<0x00>' to '<0xFF>' are possible");
    }
    byte_tokens_[static_cast<size_t>(value)] = id;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    TokenId& id = byte_tokens_[byte];
    const char text = static_cast<char>(byte);
    if (!sentencepiece) {
      id = find_text(byte_alphabet()[byte]);
    } else if (id < 0) {
      id = find_text({&text, 1});
      if (id < 0 && unknown_) id = *unknown_;
    }
  }
  return ok_status();
}

void Vocab::build_pieces(bool sentencepiece) {
  pieces_.reserve(size(), raw_.bytes());
  std::string text;
  for (TokenId id = 0; has(id); ++id) {
    switch (kind(id)) {
      case TokenKind::kNormal:
        sentencepiece ? unescape_spaces(raw(id), text) : decode_byte_alphabet(raw(id), text);
        break;
      case TokenKind::kByte:
        text.assign(1, static_cast<char>(byte_token_value(raw(id))));
        break;
      case TokenKind::kUnused:
        text.clear();
        break;
      default:
        text = raw(id);
    }
    pieces_.add(text);
  }
}

}  // namespace isthmus::tok
