#include "text/tokenizer.h"

#include <algorithm>
#include <new>

#include "format/gguf.h"
#include "text/utf8.h"
#include "text/vocab_tokenizer.h"

namespace isthmus {
namespace tok {
namespace {

SpecialMatcher matcher_of(const Vocab& vocab, bool only_user_defined, bool strips_right) {
  std::vector<SpecialMatcher::Spelling> spellings;
  for (TokenId id = 0; vocab.has(id); ++id) {
    const bool user_defined = vocab.kind(id) == TokenKind::kUserDefined;
    if (!user_defined && (only_user_defined || !vocab.is_special(id))) continue;
    const std::string_view text = vocab.raw(id);
    // Phi-3's tokenizer lets its special tokens swallow the white space behind them, these three excepted.
    const bool strips = strips_right && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    spellings.push_back({text, id, strips});
  }
  return SpecialMatcher(std::move(spellings));
}

}  // namespace

VocabTokenizer::VocabTokenizer(Vocab vocab, Settings settings)
    : vocab_(std::move(vocab)),
      settings_(std::move(settings)),
      user_defined_(matcher_of(vocab_, true, settings_.specials_strip_right)),
      all_specials_(matcher_of(vocab_, false, settings_.specials_strip_right)) {
  for (size_t byte = 0; byte < 256; ++byte) {
    if (vocab_.byte_tokens()[byte] < 0) missing_bytes_.push_back(static_cast<uint8_t>(byte));
  }
}

std::vector<TokenId> VocabTokenizer::encode(std::string_view text, Specials specials,
                                            bool add_bos_eos) const {
  std::vector<TokenId> out;
  if (add_bos_eos && settings_.adds_bos) out.push_back(*vocab_.bos());
  const SpecialMatcher& matcher = specials == Specials::kParse ? all_specials_ : user_defined_;
  encode_fragments(text, matcher.split(text), out);
  if (add_bos_eos && settings_.adds_eos) out.push_back(*vocab_.eos());
  return out;
}

std::vector<TokenId> VocabTokenizer::encode_guarded(std::string_view text,
                                                    std::span<const size_t> guarded) const {
  std::vector<Fragment> kept;
  auto place = guarded.begin();
  for (const Fragment& fragment : all_specials_.split(text)) {
    while (place != guarded.end() && *place <= fragment.begin) ++place;
    const bool forged = fragment.id >= 0 && place != guarded.end() && *place < fragment.end;
    const bool is_text = fragment.id < 0 || forged;
    if (is_text && !kept.empty() && kept.back().id < 0 && kept.back().end == fragment.begin) {
      kept.back().end = fragment.end;  // what surrounds a forged token is one text with it
    } else {
      kept.push_back({fragment.begin, fragment.end, is_text ? TokenId{-1} : fragment.id});
    }
  }
  std::vector<TokenId> out;
  encode_fragments(text, kept, out);
  return out;
}

std::string_view VocabTokenizer::piece(TokenId id, bool show_special) const {
  if (!vocab_.has(id) || (!show_special && vocab_.is_special(id))) return {};
  return vocab_.piece(id);
}

std::string VocabTokenizer::decode(std::span<const TokenId> ids, bool show_special) const {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string_view text = piece(ids[i], show_special);
    if (i == 0 && settings_.drops_first_space && text.starts_with(' ')) text.remove_prefix(1);
    out += text;
  }
  return out;
}

std::optional<TokenId> VocabTokenizer::find(std::string_view raw) const {
  const TokenId id = vocab_.find(raw);
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

Status check_added_tokens(const Vocab& vocab, bool adds_bos, bool adds_eos) {
  if (adds_bos && !vocab.bos()) {
    return corrupt("a BOS token is to be added, but tokenizer.ggml.bos_token_id is missing");
  }
  if (adds_eos && !vocab.eos()) {
    return corrupt("an EOS token is to be added, but tokenizer.ggml.eos_token_id is missing");
  }
  return ok_status();
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const VocabSpec& spec) {
  try {
    if (spec.model == "gpt2") return make_bpe_tokenizer(spec);
    if (spec.model == "llama") return make_sentencepiece_tokenizer(spec);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory for the tokenizer's tables");
  }
  return unsupported("tokenizer.ggml.model is not one of: gpt2, llama");
}

}  // namespace tok

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const GgufFile& file) {
  ISTHMUS_ASSIGN_OR_RETURN(const tok::VocabSpec spec, tok::read_vocab_spec(file));
  return tok::make_tokenizer(spec);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool show_special, bool at_start)
    : tokenizer_(tokenizer), show_special_(show_special), at_start_(at_start) {}

std::string StreamDecoder::push(TokenId id) {
  if (at_start_) {
    pending_ += tokenizer_.decode({&id, 1}, show_special_);
    at_start_ = false;
  } else {
    pending_ += tokenizer_.piece(id, show_special_);
  }
  std::string out;
  pending_.erase(0, tok::utf8_mend(pending_, false, out));
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  tok::utf8_mend(pending_, true, out);
  pending_.clear();
  return out;
}

}  // namespace isthmus
