#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <ctime>
#include <thread>

#include "base/rng.h"
#include "format/gguf.h"
#include "format/testing/gguf_builder.h"
#include "text/testing/small_vocab.h"
#include "text/utf8.h"

namespace isthmus {
namespace {

using isthmus::testing::small_bpe;
using isthmus::testing::small_spm;
using isthmus::testing::SmallVocab;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Tokenizer> made(const SmallVocab& vocab) {
  auto tokenizer = vocab.make();
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return std::move(tokenizer).value();
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            Specials specials = Specials::kAsText) {
  return tokenizer.encode(text, specials, false);
}

// ---- byte-level BPE ----

TEST(BpeTokenizer, MergesInTheOrderOfTheList) {
  const auto tokenizer = made(small_bpe());
  EXPECT_THAT(encode(*tokenizer, "hello world"), ElementsAre(259, 261, 'r', 'l', 'd'));
  EXPECT_THAT(encode(*tokenizer, "hellhe"), ElementsAre(258, 256));
  EXPECT_THAT(encode(*tokenizer, "aaaaaaa"), ElementsAre(263, 262, 'a'));
  EXPECT_THAT(encode(*tokenizer, ""), IsEmpty());
}

TEST(BpeTokenizer, AnyBytesComeBack) {
  const auto tokenizer = made(small_bpe());
  std::string all;
  for (int byte = 255; byte >= 0; --byte) all += static_cast<char>(byte);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, all), false), all);
  EXPECT_THAT(encode(*tokenizer, "\xFFhe\xE2\x82"), ElementsAre(0xFF, 256, 0xE2, 0x82));
}

TEST(BpeTokenizer, BytesWithoutATokenAreLeftOutAndListed) {
  SmallVocab vocab = small_bpe();
  vocab.tokens[4] = "four";
  const auto tokenizer = made(vocab);
  EXPECT_THAT(tokenizer->missing_bytes(), ElementsAre(4));
  EXPECT_THAT(encode(*tokenizer,
                     "h\x04"
                     "e"),
              ElementsAre('h', 'e'));
  EXPECT_THAT(made(small_bpe())->missing_bytes(), IsEmpty());
}

TEST(BpeTokenizer, WholeWordIsTakenBeforeMergesOnlyWhereThePreTokenizerSaysSo) {
  SmallVocab vocab = small_bpe();
  vocab.add("\u0120world");  // 264: no merge leads there
  EXPECT_THAT(encode(*made(vocab), " world"), ElementsAre(261, 'r', 'l', 'd'));
  vocab.pre = "llama-bpe";
  vocab.options.add_bos = false;
  EXPECT_THAT(encode(*made(vocab), " world"), ElementsAre(264));
}

TEST(BpeTokenizer, AbsentPreTokenizerIsTheDefaultAndSaysSo) {
  SmallVocab vocab = small_bpe();
  vocab.pre = "";
  EXPECT_EQ(made(vocab)->name(), "gpt2/default");
}

TEST(BpeTokenizer, BadMergesAreErrors) {
  for (const char* merge : {"h", "h ", "", " ", "h qq", "zz e", "h x"}) {
    SmallVocab vocab = small_bpe();
    vocab.merges.push_back(merge);
    const auto tokenizer = vocab.make();
    ASSERT_FALSE(tokenizer.ok()) << merge;
    EXPECT_EQ(tokenizer.status().code(), Code::kCorrupt);
    EXPECT_THAT(tokenizer.status().message(), HasSubstr("merges: entry 8"));
  }
}

TEST(BpeTokenizer, UnknownPreTokenizerListsTheKnownOnes) {
  SmallVocab vocab = small_bpe();
  vocab.pre = "nonsense";
  const auto tokenizer = vocab.make();
  ASSERT_EQ(tokenizer.status().code(), Code::kUnsupported);
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("llama-bpe"));
}

// ---- SentencePiece ----

TEST(SentencePiece, BestScoreIsMergedFirst) {
  SmallVocab vocab = small_spm();
  vocab.options.add_space_prefix = false;
  const auto tokenizer = made(vocab);
  EXPECT_THAT(encode(*tokenizer, "aba"), ElementsAre(260, 263));  // "ba" (-1) before "ab" (-2)
  EXPECT_THAT(encode(*tokenizer, "ab ab"), ElementsAre(262, 267));
  EXPECT_THAT(encode(*tokenizer, "aaaaa"), ElementsAre(266, 260));
}

TEST(SentencePiece, CharactersWithoutATokenBecomeBytes) {
  SmallVocab vocab = small_spm();
  vocab.options.add_space_prefix = false;
  const auto tokenizer = made(vocab);
  EXPECT_THAT(encode(*tokenizer, "\u20ac\xFF"), ElementsAre(3 + 0xE2, 3 + 0x82, 3 + 0xAC, 3 + 0xFF));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "\u20ac a\xFF"), false), "\u20ac a\xFF");
}

TEST(SentencePiece, SpacePrefixAtTheStartAndBehindSpecials) {
  const auto tokenizer = made(small_spm());
  EXPECT_THAT(tokenizer->encode("a", Specials::kParse, true), ElementsAre(1, 264));
  EXPECT_THAT(encode(*tokenizer, "a</s>a", Specials::kParse), ElementsAre(264, 2, 264));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{264, 262}, false), "aab");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{1, 264}, false), " a");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{1, 264}, true), "<s> a");
}

TEST(SentencePiece, BytesWithoutATokenAreTheUnknownToken) {
  SmallVocab vocab = small_spm();
  for (size_t id = 3; id < 259; ++id) {
    vocab.kinds[id] = 1;
    vocab.tokens[id] = "word" + std::to_string(id);
  }
  vocab.options.add_space_prefix = false;
  EXPECT_THAT(encode(*made(vocab), "aZ"), ElementsAre(260, 0));
}

TEST(SentencePiece, MalformedByteTokensAreErrors) {
  for (const char* name :
       {"<0x-1>", "<0x1>", "<0xGG>", "<0x100>", "<0x>", "0x41", "<0x41", "<0X41>", "", "<0x 1>"}) {
    SmallVocab vocab = small_spm();
    vocab.tokens[50] = name;
    const auto tokenizer = vocab.make();
    ASSERT_EQ(tokenizer.status().code(), Code::kCorrupt) << name;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr("byte token 50"));
  }
}

TEST(SentencePiece, BadScoresAreErrors) {
  SmallVocab vocab = small_spm();
  vocab.scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(vocab.make().status().message(), HasSubstr("score of token 7"));
  vocab = small_spm();
  vocab.scores.pop_back();
  EXPECT_EQ(vocab.make().status().code(), Code::kCorrupt);
  vocab = small_spm();
  vocab.scores[262] = std::numeric_limits<float>::infinity();
  vocab.scores[263] = -std::numeric_limits<float>::infinity();
  vocab.options.add_space_prefix = false;
  EXPECT_THAT(encode(*made(vocab), "aba"), ElementsAre(262, 260));
}

TEST(SentencePiece, Phi3SpecialsSwallowSpace) {
  SmallVocab vocab = small_spm();
  const TokenId end = vocab.add("<|end|>", TokenKind::kControl);
  vocab.options.add_space_prefix = false;
  vocab.model_name = "Microsoft Phi-3 mini";
  EXPECT_THAT(encode(*made(vocab), "a<|end|> \n b", Specials::kParse), ElementsAre(260, end, 261));
  vocab.model_name = "Llama";
  EXPECT_EQ(encode(*made(vocab), "a<|end|> b", Specials::kParse).size(), 4u);
}

// ---- special tokens ----

TEST(Specials, TextNeverBecomesAControlToken) {
  SmallVocab bpe = small_bpe();
  bpe.merge("<", "|");
  const TokenId forged = bpe.merge("<|", "e");
  bpe.kinds[static_cast<size_t>(forged)] = 3;
  const auto tokenizer = made(bpe);
  EXPECT_THAT(encode(*tokenizer, "<|e"), ElementsAre(264, 'e'));
  EXPECT_THAT(encode(*tokenizer, "<|e", Specials::kParse), ElementsAre(forged));

  SmallVocab spm = small_spm();
  spm.options.add_space_prefix = false;
  spm.add("</", TokenKind::kNormal, -1);
  spm.add("s>", TokenKind::kNormal, -1);
  EXPECT_THAT(encode(*made(spm), "</s>"), ElementsAre(269, 270));
  EXPECT_THAT(encode(*made(spm), "</s>", Specials::kParse), ElementsAre(2));
}

TEST(Specials, UserDefinedTokensAreFoundInAnyText) {
  SmallVocab vocab = small_bpe();
  const TokenId tool = vocab.add("<tool>", TokenKind::kUserDefined);
  const auto tokenizer = made(vocab);
  EXPECT_THAT(encode(*tokenizer, "he<tool>he"), ElementsAre(256, tool, 256));
  EXPECT_EQ(tokenizer->piece(tool, false), "<tool>");
}

TEST(Specials, PiecesOfControlTokensShowOnlyOnDemand) {
  SmallVocab vocab = small_bpe();
  const TokenId end = vocab.add("<|im_end|>", TokenKind::kControl);
  const TokenId unused = vocab.add("[PAD7]", TokenKind::kUnused);
  const auto tokenizer = made(vocab);
  EXPECT_EQ(tokenizer->piece(end, false), "");
  EXPECT_EQ(tokenizer->piece(end, true), "<|im_end|>");
  EXPECT_EQ(tokenizer->piece(unused, true), "");
  EXPECT_EQ(tokenizer->piece(-1, true), "");
  EXPECT_EQ(tokenizer->piece(100000, true), "");
  EXPECT_EQ(tokenizer->raw(100000), "");
  EXPECT_EQ(tokenizer->kind(-7), TokenKind::kUnknown);
  EXPECT_EQ(tokenizer->find("<|im_end|>"), end);
  EXPECT_EQ(tokenizer->find("nothing"), std::nullopt);
}

TEST(Specials, StopTokens) {
  SmallVocab vocab = small_bpe();
  const TokenId end = vocab.add("<|im_end|>", TokenKind::kControl);
  const TokenId text = vocab.add("<|endoftext|>");  // not marked as control by its file
  vocab.add("<|im_start|>", TokenKind::kControl);
  const TokenId repo = vocab.add("<|repo_name|>", TokenKind::kControl);
  const TokenId own = vocab.add("stop!", TokenKind::kControl);
  const TokenId eos = vocab.add("<fin>", TokenKind::kControl);
  vocab.options.eot = own;
  vocab.options.eos = eos;
  const auto tokenizer = made(vocab);
  EXPECT_THAT(tokenizer->stop_tokens(), ElementsAre(end, text, repo, own, eos));
  EXPECT_EQ(tokenizer->kind(text), TokenKind::kControl);
  EXPECT_THAT(made(small_bpe())->stop_tokens(), IsEmpty());
}

TEST(Specials, HarmonyEndIsNoStop) {
  SmallVocab vocab = small_bpe();
  const TokenId end = vocab.add("<|end|>", TokenKind::kControl);
  const TokenId back = vocab.add("<|return|>", TokenKind::kControl);
  const TokenId call = vocab.add("<|call|>", TokenKind::kControl);
  EXPECT_THAT(made(vocab)->stop_tokens(), ElementsAre(back, call));
  EXPECT_EQ(made(vocab)->kind(end), TokenKind::kUserDefined);
}

TEST(Specials, BosAndEosAsTheMetadataSays) {
  SmallVocab vocab = small_bpe();
  const TokenId bos = vocab.add("<s>", TokenKind::kControl);
  vocab.options.bos = vocab.options.eos = bos;
  EXPECT_THAT(made(vocab)->encode("he", Specials::kAsText, true), ElementsAre(256));
  vocab.options.add_bos = vocab.options.add_eos = true;
  EXPECT_THAT(made(vocab)->encode("he", Specials::kAsText, true), ElementsAre(bos, 256, bos));
  EXPECT_THAT(made(vocab)->encode("", Specials::kAsText, true), ElementsAre(bos, bos));
  EXPECT_THAT(made(vocab)->encode("he", Specials::kAsText, false), ElementsAre(256));
  vocab.options.bos.reset();
  EXPECT_EQ(vocab.make().status().code(), Code::kCorrupt);
}

TEST(Vocab, BadVocabulariesAreErrors) {
  SmallVocab vocab = small_bpe();
  vocab.tokens[9] = vocab.tokens[8];
  EXPECT_THAT(vocab.make().status().message(), HasSubstr("a second time"));
  vocab = small_bpe();
  vocab.kinds[3] = 7;
  EXPECT_THAT(vocab.make().status().message(), HasSubstr("token 3 has type 7"));
  vocab = small_bpe();
  vocab.kinds.pop_back();
  EXPECT_EQ(vocab.make().status().code(), Code::kCorrupt);
  vocab = small_bpe();
  vocab.options.eos = vocab.tokens.size();
  EXPECT_THAT(vocab.make().status().message(), HasSubstr("outside the vocabulary"));
  vocab = small_bpe();
  vocab.options.fim_pad = uint64_t{1} << 40;
  EXPECT_EQ(vocab.make().status().code(), Code::kCorrupt);
  vocab = SmallVocab();
  EXPECT_EQ(vocab.make().status().code(), Code::kCorrupt);
  vocab = small_bpe();
  vocab.model = "bert";
  EXPECT_THAT(vocab.make().status().message(), HasSubstr("gpt2, llama"));
}

TEST(Vocab, LongAndEmptySpellings) {
  SmallVocab vocab = small_bpe();
  const TokenId longest = vocab.add(std::string(64 << 10, 'x'));
  const TokenId empty = vocab.add("");
  const auto tokenizer = made(vocab);
  EXPECT_EQ(tokenizer->piece(longest, false).size(), size_t{64} << 10);
  EXPECT_EQ(tokenizer->raw(empty), "[EMPTY_265]");
}

// ---- GGUF ----

std::vector<std::byte> gguf_bytes(std::optional<uint32_t> bos) {
  isthmus::testing::GgufBuilder builder;
  builder.preamble(0, bos ? 6 : 5)
      .pair("general.architecture", "llama")
      .pair("tokenizer.ggml.model", "gpt2")
      .pair("tokenizer.ggml.pre", "gpt-2")
      .strings("tokenizer.ggml.tokens", {"h", "e", "he"})
      .strings("tokenizer.ggml.merges", {"h e"});
  if (bos) builder.pair<uint32_t>("tokenizer.ggml.bos_token_id", GgufType::kU32, *bos);
  return builder.bytes();
}

TEST(FromGguf, ReadsAVocabulary) {
  const auto bytes = gguf_bytes(2);
  const auto file = GgufFile::parse(bytes, "test");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto tokenizer = Tokenizer::from_gguf(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_THAT(encode(**tokenizer, "hehe"), ElementsAre(2, 2));
  EXPECT_EQ((*tokenizer)->bos(), 2);
  EXPECT_EQ((*tokenizer)->name(), "gpt2/gpt-2");
  EXPECT_EQ((*tokenizer)->missing_bytes().size(), 254u);
}

TEST(FromGguf, IdOutsideTheVocabularyNamesTheKey) {
  const auto bytes = gguf_bytes(3);
  const auto file = GgufFile::parse(bytes, "test");
  ASSERT_TRUE(file.ok());
  const Status status = Tokenizer::from_gguf(*file).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.ggml.bos_token_id is 3"));
}

TEST(FromGguf, MissingKeysAreNamed) {
  isthmus::testing::GgufBuilder builder;
  builder.preamble(0, 2).pair("general.architecture", "llama").pair("tokenizer.ggml.model", "gpt2");
  const auto file = GgufFile::parse(builder.bytes(), "test");
  ASSERT_TRUE(file.ok());
  const Status status = Tokenizer::from_gguf(*file).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.ggml.tokens"));
}

// ---- time, stack, threads ----

// Sanitizers and unoptimised builds are 10 to 20 times slower; there a shorter text takes the same path.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr size_t kBytes = size_t{1} << 17;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr size_t kBytes = size_t{1} << 17;
#else
constexpr size_t kBytes = size_t{1} << 20;
#endif
#else
constexpr size_t kBytes = size_t{1} << 20;
#endif

void expect_fast(const Tokenizer& tokenizer) {
  for (const std::string piece : {"a", " ", "\n", "\r\n", "\u00e9", "\U0001F600", "7", ".", "'", "'s",
                                  "\u4e2d", "\u0301", "\u00a0", "\xFF", " a", "<"}) {
    std::string text;
    while (text.size() < kBytes) text += piece;
    const std::clock_t start = std::clock();  // processor time: the machine may be busy
    const auto ids = encode(tokenizer, text, Specials::kParse);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_EQ(tokenizer.decode(ids, false).size(), text.size());
    EXPECT_LT(seconds, 1.0) << tokenizer.name() << " on " << piece;
  }
}

// Runs `body` on a thread with a stack of 256 KiB.
void on_small_stack(void (*body)()) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  const auto start = [](void* argument) -> void* {
    reinterpret_cast<void (*)()>(argument)();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, start, reinterpret_cast<void*>(body)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(Linear, OneMebibyteOfOneCharacterByteLevel) {
  on_small_stack([] {
    for (const char* pre : {"gpt-2", "smollm", "qwen2", "llama-bpe", "default"}) {
      SmallVocab vocab = small_bpe();
      vocab.pre = pre;
      vocab.options.add_bos = false;
      vocab.merge("\u0120", "\u0120");
      vocab.merge("\u0120\u0120", "\u0120\u0120");
      vocab.merge("'", "s");
      expect_fast(*made(vocab));
    }
  });
}

TEST(Linear, OneMebibyteOfOneCharacterSentencePiece) {
  on_small_stack([] {
    SmallVocab vocab = small_spm();
    vocab.options.add_space_prefix = false;
    vocab.add("\u2581\u2581", TokenKind::kNormal, -1);
    std::string lines;
    for (int i = 0; i < 31; ++i) {
      lines += '\n';
      vocab.add(lines, TokenKind::kUserDefined);
    }
    expect_fast(*made(vocab));
  });
}

TEST(Threads, OneTokenizerServesMany) {
  const auto tokenizer = made(small_bpe());
  const auto want = encode(*tokenizer, "hello world hello");
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (auto& count : equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) count += encode(*tokenizer, "hello world hello") == want;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(equal, ElementsAre(500, 500, 500, 500));
}

// ---- streaming ----

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool at_start = true) {
  StreamDecoder decoder(tokenizer, false, at_start);
  std::string out;
  for (const TokenId id : ids) {
    const std::string text = decoder.push(id);
    std::string mended;
    tok::utf8_mend(text, true, mended);
    EXPECT_EQ(mended, text) << "a broken character went out";
    out += text;
  }
  return out + decoder.finish();
}

TEST(StreamDecoder, CharactersWaitForTheirBytes) {
  const auto tokenizer = made(small_bpe());
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.push(0x80), "\U0001F600");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push('x'), "\uFFFDx");
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, StoppedAtEveryByte) {
  const auto tokenizer = made(small_bpe());
  const std::string text = "a\u00e9\u20ac\U0001F600";
  const auto ids = encode(*tokenizer, text);
  for (size_t n = 0; n <= ids.size(); ++n) {
    std::string want;
    tok::utf8_mend(text.substr(0, n), true, want);
    EXPECT_EQ(streamed(*tokenizer, {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n)}), want);
  }
}

TEST(StreamDecoder, EqualsDecodeOnRandomTokens) {
  Rng rng(5);
  for (const auto& vocab : {small_bpe(), small_spm()}) {
    const auto tokenizer = made(vocab);
    for (int turn = 0; turn < 1000; ++turn) {
      std::vector<TokenId> ids(rng.below(20));
      for (auto& id : ids) id = static_cast<TokenId>(rng.below(tokenizer->vocab_size() + 2));
      std::string want;
      tok::utf8_mend(tokenizer->decode(ids, false), true, want);
      ASSERT_EQ(streamed(*tokenizer, ids), want);
    }
  }
}

TEST(StreamDecoder, FirstSpaceOnlyAtTheStart) {
  const auto tokenizer = made(small_spm());
  EXPECT_EQ(streamed(*tokenizer, {264, 264}, true), "a a");
  EXPECT_EQ(streamed(*tokenizer, {264, 264}, false), " a a");
}

}  // namespace
}  // namespace isthmus
