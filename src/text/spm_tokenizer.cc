// SentencePiece BPE (Kudo and Richardson 2018): no words; spaces are written U+2581, and of all neighbours
// that spell a token together those with the best score are merged first. Characters that no token spells
// become byte tokens.
#include <bit>
#include <cmath>

#include "text/merge.h"
#include "text/vocab_tokenizer.h"
#include "text/word_cache.h"

namespace isthmus::tok {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// A segment longer than this is merged in parts, so that positions fit 32 bits.
constexpr size_t kMaxSegmentBytes = size_t{1} << 30;

// Bytes of the character that starts with `lead`, as SentencePiece counts: by the lead byte alone, cut off at
// the end of the text.
size_t symbol_length(std::string_view text, size_t pos) {
  const auto lead = static_cast<uint8_t>(text[pos]);
  const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(length, text.size() - pos);
}

// Up to four bytes as a number.
uint32_t packed(std::string_view symbol) {
  uint32_t out = 0;
  for (const char c : symbol) out = out << 8 | static_cast<uint8_t>(c);
  return out;
}

// Which characters stand side by side in some token. Between two that never do no merge can happen, so the
// text may be cut there into segments that are merged on their own. A set of hashes: it may claim too much,
// never too little.
class Neighbours {
 public:
  Neighbours() : bits_(kBits / 64) {}

  void add_token(std::string_view raw) {
    uint32_t before = 0;
    for (size_t pos = 0; pos < raw.size();) {
      const size_t length = symbol_length(raw, pos);
      const uint32_t now = packed(raw.substr(pos, length));
      if (pos > 0) bits_[slot(before, now) / 64] |= uint64_t{1} << (slot(before, now) % 64);
      before = now;
      pos += length;
    }
  }
  bool may_join(uint32_t left, uint32_t right) const {
    return (bits_[slot(left, right) / 64] >> (slot(left, right) % 64) & 1) != 0;
  }

 private:
  static constexpr size_t kBits = size_t{1} << 21;
  static size_t slot(uint32_t left, uint32_t right) {
    const uint64_t mixed = (static_cast<uint64_t>(left) << 32 | right) * 0x9E3779B97F4A7C15ULL;
    return (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9ULL >> 43;
  }
  std::vector<uint64_t> bits_;
};

// Ranks in ascending order are scores in descending order; -0 and +0 are one.
uint32_t rank_of_score(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}

class SentencePieceTokenizer final : public VocabTokenizer {
 public:
  SentencePieceTokenizer(Vocab vocab, Settings settings, const std::vector<float>& scores, bool adds_space)
      : VocabTokenizer(std::move(vocab), std::move(settings)), adds_space_(adds_space) {
    ranks_.reserve(scores.size());
    for (const float score : scores) ranks_.push_back(rank_of_score(score));
    for (TokenId id = 0; this->vocab().has(id); ++id) neighbours_.add_token(this->vocab().raw(id));
  }

 private:
  void encode_fragments(std::string_view text, const std::vector<Fragment>& fragments,
                        std::vector<TokenId>& out) const override {
    Merger merger;
    WordCache cache(text.size());
    std::string escaped;
    std::vector<Fragment> parts;
    escape(text, fragments, escaped, parts);
    const auto merge = [&](size_t begin, size_t end) { merge_segment(escaped, begin, end, merger, out); };
    for (const auto& part : parts) {
      if (part.id >= 0) {
        out.push_back(part.id);
        continue;
      }
      const std::string_view fragment = std::string_view(escaped).substr(part.begin, part.end - part.begin);
      for_each_segment(fragment, [&](size_t begin, size_t end) {
        cache.encode(escaped, part.begin + begin, part.begin + end, out, merge);
      });
    }
  }

  // The plain fragments in SentencePiece's spelling, one behind the other in `escaped`, and where they are
  // there. The first fragment, and one behind a special token, gets a leading space if the model wants it.
  void escape(std::string_view text, const std::vector<Fragment>& fragments, std::string& escaped,
              std::vector<Fragment>& parts) const {
    escaped.reserve(text.size() + text.size() / 2);
    bool after_special = true;
    for (const auto& fragment : fragments) {
      if (fragment.id >= 0) {
        parts.push_back(fragment);
        after_special = true;
        continue;
      }
      const size_t begin = escaped.size();
      if (adds_space_ && after_special) escaped += kSpaceMark;
      for (const char c : text.substr(fragment.begin, fragment.end - fragment.begin)) {
        if (c == ' ') {
          escaped += kSpaceMark;
        } else {
          escaped += c;
        }
      }
      parts.push_back({begin, escaped.size(), -1});
      after_special = false;
    }
  }

  // Calls `segment` with ranges of `fragment` between which no merge is possible.
  template <class Segment>
  void for_each_segment(std::string_view fragment, const Segment& segment) const {
    size_t begin = 0;
    uint32_t before = 0;
    for (size_t pos = 0; pos < fragment.size();) {
      const size_t length = symbol_length(fragment, pos);
      const uint32_t now = packed(fragment.substr(pos, length));
      if (pos > begin && (!neighbours_.may_join(before, now) || pos - begin > kMaxSegmentBytes)) {
        segment(begin, pos);
        begin = pos;
      }
      before = now;
      pos += length;
    }
    if (begin < fragment.size()) segment(begin, fragment.size());
  }

  void merge_segment(std::string_view escaped, size_t begin, size_t end, Merger& merger,
                     std::vector<TokenId>& out) const {
    const std::string_view text = escaped.substr(begin, end - begin);
    auto& symbols = merger.symbols();
    symbols.clear();
    for (size_t pos = 0; pos < text.size();) {
      const size_t length = symbol_length(text, pos);
      symbols.push_back({static_cast<uint32_t>(pos), static_cast<uint32_t>(length),
                         vocab().find_text(text.substr(pos, length))});
      pos += length;
    }
    merger.run([&](const Symbol& left, const Symbol& right) {
      const size_t length = size_t{left.length} + right.length;
      if (length > vocab().max_raw_bytes()) return Joined{kNoMerge, -1};
      const TokenId id = vocab().find_text(text.substr(left.begin, length));
      return id < 0 ? Joined{kNoMerge, -1} : Joined{ranks_[static_cast<size_t>(id)], id};
    });
    for (const Symbol& symbol : symbols) {
      if (symbol.id >= 0) {
        out.push_back(symbol.id);
        continue;
      }
      for (const char byte : text.substr(symbol.begin, symbol.length)) {
        const TokenId id = vocab().byte_tokens()[static_cast<uint8_t>(byte)];
        if (id >= 0) out.push_back(id);  // else one of missing_bytes()
      }
    }
  }

  std::vector<uint32_t> ranks_;  // of each token, from its score
  Neighbours neighbours_;
  bool adds_space_;
};

Status check_scores(const VocabSpec& spec) {
  if (spec.scores.size() != spec.tokens.size()) {
    return corrupt("tokenizer.ggml.scores has " + std::to_string(spec.scores.size()) + " entries for " +
                   std::to_string(spec.tokens.size()) + " tokens");
  }
  for (size_t id = 0; id < spec.scores.size(); ++id) {
    if (std::isnan(spec.scores[id])) {
      return corrupt("tokenizer.ggml.scores: the score of token " + std::to_string(id) + " is not a number");
    }
  }
  return ok_status();
}

// Phi-3's files do not say that its special tokens swallow white space; the model's name does.
bool is_phi3(std::string_view model_name) {
  std::string lower;
  for (const char c : model_name) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(const VocabSpec& spec) {
  ISTHMUS_RETURN_IF_ERROR(check_scores(spec));
  ISTHMUS_ASSIGN_OR_RETURN(Vocab vocab, Vocab::create(spec));
  VocabTokenizer::Settings settings;
  settings.adds_bos = spec.add_bos.value_or(true);
  settings.adds_eos = spec.add_eos.value_or(false);
  settings.drops_first_space = spec.add_space_prefix.value_or(true);
  settings.specials_strip_right = is_phi3(spec.model_name);
  settings.name = "llama/spm";
  ISTHMUS_RETURN_IF_ERROR(check_added_tokens(vocab, settings.adds_bos, settings.adds_eos));
  const bool adds_space = settings.drops_first_space;
  return std::unique_ptr<Tokenizer>(std::make_unique<SentencePieceTokenizer>(
      std::move(vocab), std::move(settings), spec.scores, adds_space));
}

}  // namespace isthmus::tok
