// Random token streams through the streaming decoder: what goes out is whole UTF-8 at every step, and all of
// it together is decode() with broken parts replaced.
//
// First byte: which vocabulary and which settings; then two bytes a token.
#include <cstdlib>

#include "text/testing/small_vocab.h"
#include "text/utf8.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

std::string mended(const std::string& text) {
  std::string out;
  isthmus::tok::utf8_mend(text, true, out);
  return out;
}

const isthmus::Tokenizer& tokenizer(bool sentencepiece) {
  static const auto bpe = isthmus::testing::small_bpe().make().value();
  static const auto spm = isthmus::testing::small_spm().make().value();
  return sentencepiece ? *spm : *bpe;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  const bool show_special = (bytes[0] & 2) != 0;
  const isthmus::Tokenizer& t = tokenizer((bytes[0] & 1) != 0);
  isthmus::StreamDecoder decoder(t, show_special, true);
  std::vector<isthmus::TokenId> ids;
  std::string streamed;
  for (size_t i = 1; i + 1 < size; i += 2) {
    ids.push_back(static_cast<int16_t>(bytes[i] | bytes[i + 1] << 8));
    const std::string text = decoder.push(ids.back());
    require(mended(text) == text);
    streamed += text;
  }
  const std::string rest = decoder.finish();
  require(mended(rest) == rest);
  require(streamed + rest == mended(t.decode(ids, show_special)));
  require(decoder.finish().empty());
  return 0;
}
