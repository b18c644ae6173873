// Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): text is cut into words by a pre-tokenizer, a
// word starts as the tokens of its bytes, and neighbours are merged in the order of the model's merge list.
#include <algorithm>
#include <array>
#include <bit>

#include "text/merge.h"
#include "text/pre_tokenizer.h"
#include "text/vocab_tokenizer.h"
#include "text/word_cache.h"

namespace isthmus::tok {
namespace {

// A word longer than this is merged in parts, so that positions fit 32 bits.
constexpr size_t kMaxWordBytes = size_t{1} << 30;

// From a pair of neighbouring tokens to what they become: a hash table, at most half full.
class PairTable {
 public:
  void reset(size_t count) { slots_.assign(std::bit_ceil(std::max<size_t>(count * 2, 8)), Slot{}); }

  /// The first entry of a pair counts. False when the pairs are made to collide.
  bool add(TokenId left, TokenId right, Joined joined) {
    const uint64_t key = key_of(left, right);
    size_t at = start_of(key);
    for (size_t probes = 0; slots_[at].joined.rank != kNoMerge; ++probes) {
      if (slots_[at].key == key) return true;
      if (probes == kMaxProbes) return false;
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {key, joined};
    return true;
  }

  Joined find(TokenId left, TokenId right) const {
    const uint64_t key = key_of(left, right);
    size_t at = start_of(key);
    while (slots_[at].key != key && slots_[at].joined.rank != kNoMerge) at = (at + 1) & (slots_.size() - 1);
    return slots_[at].joined;
  }

 private:
  static constexpr size_t kMaxProbes = 1000;
  struct Slot {
    uint64_t key = 0;
    Joined joined{kNoMerge, -1};
  };

  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t start_of(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15ULL;
    return (mixed ^ mixed >> 32) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

// One entry of the merge list with the hashes of its three spellings.
struct MergeText {
  std::string_view left, right;
  std::string both;
  uint64_t left_hash, right_hash, both_hash;
};

Status merge_error(size_t rank, const char* what) {
  return corrupt("tokenizer.ggml.merges: entry " + std::to_string(rank) + what);
}

Status parse_merge(std::string_view merge, size_t rank, MergeText& out) {
  const size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == merge.size()) {
    return merge_error(rank, " is not two tokens with a space between");
  }
  out.left = merge.substr(0, space);
  out.right = merge.substr(space + 1);
  out.both.assign(out.left).append(out.right);
  out.left_hash = hash_bytes(out.left);
  out.right_hash = hash_bytes(out.right);
  out.both_hash = hash_bytes(out.both);
  return ok_status();
}

Status add_merge(const MergeText& merge, uint32_t rank, const Vocab& vocab, PairTable& table) {
  const TokenId left = vocab.find(merge.left, merge.left_hash);
  const TokenId right = vocab.find(merge.right, merge.right_hash);
  const TokenId both = vocab.find(merge.both, merge.both_hash);
  if (left < 0 || right < 0 || both < 0)
    return merge_error(rank, " names a token that is not in the vocabulary");
  // Ordinary text never becomes a control token, whatever the merges say.
  if (vocab.is_special(both) || vocab.kind(both) == TokenKind::kByte) return ok_status();
  return table.add(left, right, {rank, both}) ? ok_status() : merge_error(rank, ": pairs made to collide");
}

// In blocks, so that the look-ups of a block wait for memory together: a vocabulary of 150,000 loads in about
// half the time.
Result<PairTable> read_merges(const VocabSpec& spec, const Vocab& vocab) {
  if (spec.merges.size() > kMaxTokens) {
    return corrupt("tokenizer.ggml.merges has " + std::to_string(spec.merges.size()) + " entries; at most " +
                   std::to_string(kMaxTokens) + " are possible");
  }
  PairTable table;
  table.reset(spec.merges.size());
  std::array<MergeText, 32> block;
  for (size_t begin = 0; begin < spec.merges.size(); begin += block.size()) {
    const size_t count = std::min(block.size(), spec.merges.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      ISTHMUS_RETURN_IF_ERROR(parse_merge(spec.merges[begin + i], begin + i, block[i]));
      for (const uint64_t hash : {block[i].left_hash, block[i].right_hash, block[i].both_hash})
        vocab.prefetch(hash);
    }
    for (size_t i = 0; i < count; ++i) {
      ISTHMUS_RETURN_IF_ERROR(add_merge(block[i], static_cast<uint32_t>(begin + i), vocab, table));
    }
  }
  return table;
}

class BpeTokenizer final : public VocabTokenizer {
 public:
  BpeTokenizer(Vocab vocab, Settings settings, PreTokenizerFacts pre, PairTable pairs)
      : VocabTokenizer(std::move(vocab), std::move(settings)), pre_(pre), pairs_(std::move(pairs)) {}

 private:
  void encode_fragments(std::string_view text, const std::vector<Fragment>& fragments,
                        std::vector<TokenId>& out) const override {
    Merger merger;
    WordCache cache(text.size());
    const auto merge_word = [&](size_t begin, size_t end) {
      encode_word(text.substr(begin, end - begin), merger, out);
    };
    size_t base = 0;
    const auto word = [&](size_t begin, size_t end) {
      cache.encode(text, base + begin, base + end, out, merge_word);
    };
    for (const auto& fragment : fragments) {
      if (fragment.id >= 0) {
        out.push_back(fragment.id);
        continue;
      }
      base = fragment.begin;
      split_words(pre_.kind, text.substr(base, fragment.end - base), word);
    }
  }

  void encode_word(std::string_view word, Merger& merger, std::vector<TokenId>& out) const {
    if (pre_.ignore_merges && word.size() <= vocab().max_raw_bytes()) {
      const TokenId id = vocab().find_text(to_byte_alphabet(word));
      if (id >= 0) return out.push_back(id);
    }
    for (; word.size() > kMaxWordBytes; word.remove_prefix(kMaxWordBytes)) {
      merge_part(word.substr(0, kMaxWordBytes), merger, out);
    }
    merge_part(word, merger, out);
  }

  void merge_part(std::string_view part, Merger& merger, std::vector<TokenId>& out) const {
    auto& symbols = merger.symbols();
    symbols.resize(part.size());
    for (uint32_t i = 0; i < part.size(); ++i) {
      symbols[i] = {i, 1, vocab().byte_tokens()[static_cast<uint8_t>(part[i])]};
    }
    merger.run([this](const Symbol& left, const Symbol& right) {
      if (left.id < 0 || right.id < 0) return Joined{kNoMerge, -1};
      return pairs_.find(left.id, right.id);
    });
    for (const Symbol& symbol : symbols) {
      if (symbol.id >= 0) out.push_back(symbol.id);  // else one of missing_bytes()
    }
  }

  PreTokenizerFacts pre_;
  PairTable pairs_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const VocabSpec& spec) {
  const auto pre = find_pre_tokenizer(spec.pre.empty() ? "default" : spec.pre);
  if (!pre) {
    std::string known;
    for (const auto name : pre_tokenizer_names()) known += (known.empty() ? "" : ", ") + std::string(name);
    return unsupported("tokenizer.ggml.pre is not one of: " + known);
  }
  ISTHMUS_ASSIGN_OR_RETURN(Vocab vocab, Vocab::create(spec));
  ISTHMUS_ASSIGN_OR_RETURN(PairTable pairs, read_merges(spec, vocab));
  VocabTokenizer::Settings settings;
  settings.adds_bos = spec.add_bos.value_or(pre->adds_bos);
  settings.adds_eos = spec.add_eos.value_or(false);
  settings.name = "gpt2/" + std::string(pre->name);
  ISTHMUS_RETURN_IF_ERROR(check_added_tokens(vocab, settings.adds_bos, settings.adds_eos));
  return std::unique_ptr<Tokenizer>(
      std::make_unique<BpeTokenizer>(std::move(vocab), std::move(settings), *pre, std::move(pairs)));
}

}  // namespace isthmus::tok
