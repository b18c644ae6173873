// Sessions over coded KV: null settings, any split, going back, speculation's chains, and policies.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/session.h"

namespace isthmus {
namespace {

constexpr size_t kCodedTokens = 200;

std::vector<TokenId> coded_text(size_t n = kCodedTokens) {
  std::vector<TokenId> out;
  uint32_t seed = 9;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525U + 1013904223U;
    out.push_back(static_cast<TokenId>(3 + seed / 65536 % 90));
  }
  return out;
}

std::shared_ptr<LanguageModel> coded_model(const std::string& name, const std::string& bits,
                                           size_t residual = 64, KeyForm keys = KeyForm::kRotated,
                                           const EvictionOptions& eviction = {}) {
  ModelOptions options;
  options.context = 256;
  options.sequences = 3;
  options.step_outputs = 8;
  options.draft_tokens = 7;
  options.eviction = eviction;
  auto codec = parse_kv_bits(bits);
  EXPECT_TRUE(codec.ok()) << codec.status().to_string();
  options.kv_codec = *codec;
  options.kv_codec.residual = residual;
  options.kv_codec.keys = keys;
  auto model = LanguageModel::load(ISTHMUS_TINY_MODELS "/" + name + ".gguf", std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

/// Logits after the text, read in steps of `split` tokens, and after some more tokens one by one.
std::vector<float> read_text(Session& session, size_t split, const std::vector<TokenId>& text) {
  for (size_t at = session.tokens().size(); at < text.size();) {
    const size_t n = std::min(split, text.size() - at);
    EXPECT_TRUE(session.append(std::span(text).subspan(at, n), Purpose::kPrompt).ok());
    at += n;
  }
  for (TokenId token = 20; token < 30; ++token) {
    EXPECT_TRUE(session.append({&token, 1}, Purpose::kGeneration).ok());
  }
  return {session.logits().begin(), session.logits().end()};
}

std::vector<float> fresh(const std::shared_ptr<LanguageModel>& model, size_t split,
                         const std::vector<TokenId>& text = coded_text()) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok());
  return read_text(**session, split, text);
}

TEST(KvCodingOfSessions, NullSettingsAreThePlainCache) {
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const auto plain = fresh(coded_model(name, "16"), 512);
    EXPECT_EQ(fresh(coded_model(name, "16,16"), 512), plain) << name;
    EXPECT_EQ(fresh(coded_model(name, "4", 256), 512), plain) << name << ": the residual holds all";
    EXPECT_NE(fresh(coded_model(name, "4", 64), 512), plain) << name;
  }
}

TEST(KvCodingOfSessions, AnySplitHasTheSameBits) {
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    for (const KeyForm keys : {KeyForm::kRotated, KeyForm::kUnrotated}) {
      const auto model = coded_model(name, "k4v2", 64, keys);
      const auto whole = fresh(model, 512);
      for (const size_t split : {1, 7, 33, 64, 100}) EXPECT_EQ(fresh(model, split), whole) << name << split;
    }
  }
}

TEST(KvCodingOfSessions, GoingBackReadsFromTheLastCodingOn) {
  const auto model = coded_model("llama", "4");
  const auto text = coded_text();
  const auto want = fresh(model, 512);
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  (void)read_text(**session, 50, text);
  EXPECT_EQ((*session)->truncate(150).code(), Code::kFailedPrecondition);
  EXPECT_EQ((*session)->keep_common_prefix(std::span(text).first(150)), 128U);
  EXPECT_EQ(read_text(**session, 50, text), want);
  auto second = (*session)->fork();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->keep_common_prefix(text), 199U);
  EXPECT_EQ(read_text(**second, 50, text), want);
}

TEST(KvCodingOfSessions, AChainEndsAtTheNextCoding) {
  const auto model = coded_model("llama", "4");
  const auto text = coded_text(62);
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->append(text, Purpose::kPrompt).ok());
  ASSERT_TRUE((*session)->reserve_chain(4).ok());
  EXPECT_EQ((*session)->chain_room(), 2U);
  const std::vector<TokenId> chain = {20, 21, 22, 23};
  EXPECT_EQ((*session)->try_chain(std::span(chain).first(3)).code(), Code::kResourceExhausted);
  std::vector<float> rows;
  EXPECT_EQ((*session)->try_tree(std::span(chain).first(3), {}, rows).code(), Code::kResourceExhausted);
  ASSERT_TRUE((*session)->try_chain(std::span(chain).first(2)).ok());
  ASSERT_TRUE((*session)->keep_chain(2).ok());
  EXPECT_EQ((*session)->kv_figures().exactness, Exactness::kQuantised);
}

TEST(KvCodingOfSessions, FiguresSayWhatIsHeld) {
  const auto model = coded_model("llama", "k4v2");
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  (void)read_text(**session, 512, coded_text(128));
  const KvFigures figures = (*session)->kv_figures();
  EXPECT_EQ(figures.codec, "k4v2");
  EXPECT_EQ(figures.exactness, Exactness::kQuantised);
  EXPECT_EQ(figures.bytes, (*session)->kv().bytes());
}

TEST(KvCodingOfSessions, KeysGoBeforeTheyAreCoded) {
  EvictionOptions eviction;
  eviction.policy = KvPolicy::kKeyDiff;
  eviction.share = 0.5;
  const auto model = coded_model("llama", "4", 64, KeyForm::kRotated, eviction);
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->append(coded_text(), Purpose::kPrompt).ok());
  EXPECT_EQ((*session)->kv_figures().exactness, Exactness::kExact);
  ASSERT_TRUE((*session)->evict().ok());
  EXPECT_EQ((*session)->kv_figures().exactness, Exactness::kQuantised);
  EXPECT_TRUE((*session)->pruned());
  (void)read_text(**session, 512, coded_text(240));
  for (const float x : (*session)->logits()) ASSERT_TRUE(std::isfinite(x));
  ASSERT_TRUE((*session)->truncate(0).ok());
  ASSERT_TRUE((*session)->append(coded_text(), Purpose::kPrompt).ok());
  EXPECT_EQ((*session)->kv_figures().exactness, Exactness::kExact)
      << "a new text is coded after its keys went";
}

TEST(KvCodingOfSessions, WhatDoesNotGoTogetherIsRefused) {
  const auto refusal = [](const std::string& bits, KvType type, KvPolicy policy, KeyForm keys) {
    ModelOptions options;
    options.context = 256;
    options.kv_type = type;
    options.eviction.policy = policy;
    options.kv_codec = *parse_kv_bits(bits);
    options.kv_codec.keys = keys;
    return LanguageModel::load(ISTHMUS_TINY_MODELS "/llama.gguf", std::move(options)).status().code();
  };
  EXPECT_EQ(refusal("4", KvType::kF16, KvPolicy::kFull, KeyForm::kRotated), Code::kOk);
  EXPECT_EQ(refusal("4", KvType::kQ8, KvPolicy::kFull, KeyForm::kRotated), Code::kInvalidArgument);
  EXPECT_EQ(refusal("4,4,4,4,4,4,4,4,4", KvType::kF16, KvPolicy::kFull, KeyForm::kRotated),
            Code::kInvalidArgument);
  EXPECT_EQ(refusal("4", KvType::kF16, KvPolicy::kWindow, KeyForm::kRotated), Code::kUnsupported);
  EXPECT_EQ(refusal("4", KvType::kF16, KvPolicy::kSnapKv, KeyForm::kUnrotated), Code::kUnsupported);
}

}  // namespace
}  // namespace isthmus
