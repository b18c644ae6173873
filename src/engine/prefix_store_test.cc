// Stored prompts: a restored prompt has the bits of one that was read, whatever else the tier holds or does.
#include "engine/prefix_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/batcher_test_util.h"
#include "engine/testing/memory_tier.h"

namespace isthmus {
namespace {

using batch_testing::expect_same_answer;
using batch_testing::load_for_batch;
using batch_testing::random_prompt;
using batch_testing::run_alone;
using batch_testing::sampled_request;
using testing::MemoryTier;
using testing::quick_digest;

PrefixStoreOptions prefix_options(MemoryTier& tier) {
  PrefixStoreOptions out;
  out.tier = &tier;
  out.digest = quick_digest;
  out.label = "tiny";
  return out;
}

std::vector<TokenId> both(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Prefixed {
  GenerateResult result;
  PrefixSave saved;
};

/// The request on a fresh session, with what the tier knows, kept there afterwards.
Prefixed run_with(const std::shared_ptr<LanguageModel>& model, PrefixStore& store, GenerateRequest request) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok());
  request.prefixes = &store;
  auto result = generate(**session, request);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return {std::move(*result), store.save(**session, request.prompt)};
}

ModelOptions prefix_model(Precision precision = Precision::kDefault, KvType type = KvType::kF16) {
  ModelOptions options;
  options.context = 700;
  options.sequences = 2;
  options.step_tokens = 96;
  options.precision = precision;
  options.kv_type = type;
  return options;
}

/// `unit`: tokens that are kept together.
void expect_hit_like_cold(ModelOptions options, const std::string& file, size_t unit = 32) {
  const auto model = load_for_batch(std::move(options), file);
  MemoryTier tier;
  Rng rng(3);
  const auto system = random_prompt(rng, 500);
  const auto first = sampled_request(both(system, random_prompt(rng, 21)), 5);
  const auto second = sampled_request(both(system, random_prompt(rng, 40)), 5);
  PrefixStore writer(prefix_options(tier));
  const Prefixed cold = run_with(model, writer, first);
  EXPECT_EQ(cold.result.figures.stored_tokens, 0U);
  EXPECT_EQ(cold.saved.tokens, 512U) << cold.saved.reason;
  PrefixStore reader(prefix_options(tier));
  const Prefixed hit = run_with(model, reader, second);
  // 15 whole blocks of the shared text; the second record is used in part.
  const size_t shared = 480 / unit * unit;
  EXPECT_EQ(hit.result.figures.stored_tokens, shared);
  EXPECT_EQ(hit.result.figures.reused_tokens, shared);
  EXPECT_GT(hit.result.figures.restore_seconds, 0);
  expect_same_answer(hit.result, run_alone(model, second), file);
  EXPECT_EQ(hit.saved.tokens, 512 - shared);  // the block in which they differ, and no more
  const Prefixed again = run_with(model, reader, second);
  EXPECT_EQ(again.result.figures.stored_tokens, 512U);
  expect_same_answer(again.result, run_alone(model, second), file);
  EXPECT_EQ(again.saved.records, 0U);
  EXPECT_EQ(tier.refusals, 0U);
}

TEST(PrefixStore, AHitHasTheBitsOfAColdRunInEveryFamily) {
  for (const char* file : {"llama.gguf", "qwen2.gguf", "gemma3.gguf"})
    expect_hit_like_cold(prefix_model(), file);
}

TEST(PrefixStore, AHitHasTheBitsOfAColdRunInEveryType) {
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8}) {
    expect_hit_like_cold(prefix_model(Precision::kDefault, type), "llama.gguf");
  }
  expect_hit_like_cold(prefix_model(Precision::kFast), "llama.gguf");
  expect_hit_like_cold(prefix_model(Precision::kReference), "llama.gguf");
}

TEST(PrefixStore, AHitOfCodedKvHasTheBitsOfAColdRun) {
  for (const char* file : {"llama.gguf", "qwen2.gguf", "gemma3.gguf"}) {
    for (const char* bits : {"8", "4", "k2v1", "k4v16"}) {
      for (const size_t residual : {32, 64}) {
        ModelOptions options = prefix_model();
        options.kv_codec = *parse_kv_bits(bits);
        options.kv_codec.residual = residual;
        expect_hit_like_cold(options, file, residual);
      }
    }
  }
}

TEST(PrefixStore, CodesDoNotMeet) {
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(4);
  const auto request = sampled_request(random_prompt(rng, 200), 3);
  size_t kept = 0;
  for (const char* bits : {"16", "4", "k4v2", "asym:1/0:4/2"}) {
    for (const size_t residual : {32, 64}) {
      ModelOptions options = prefix_model();
      options.kv_codec = *parse_kv_bits(bits);
      options.kv_codec.residual = residual;
      const bool known = !options.kv_codec.on() && residual == 64;  // without codes it means nothing
      const Prefixed run = run_with(load_for_batch(options), store, request);
      EXPECT_EQ(run.result.figures.stored_tokens, known ? 192U : 0U) << bits;
      if (!known) kept += 6;
      EXPECT_EQ(tier.by_key.size(), kept) << bits << ' ' << residual;
    }
  }
}

TEST(PrefixStore, PrecisionsAndTypesDoNotMeet) {
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(4);
  const auto request = sampled_request(random_prompt(rng, 100), 3);
  size_t kept = 0;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (const Precision precision : {Precision::kDefault, Precision::kFast, Precision::kReference}) {
      const auto model = load_for_batch(prefix_model(precision, type));
      const Prefixed run = run_with(model, store, request);
      EXPECT_EQ(run.result.figures.stored_tokens, 0U);
      EXPECT_EQ(run.saved.tokens, 96U);
      expect_same_answer(run.result, run_alone(model, request), "cold");
      EXPECT_EQ(tier.by_key.size(), kept += 3);
    }
  }
}

TEST(PrefixStore, SaltsAndModelsDoNotMeet) {
  const auto model = load_for_batch(prefix_model());
  MemoryTier tier;
  Rng rng(5);
  const auto request = sampled_request(random_prompt(rng, 100), 3);
  std::vector<PrefixStoreOptions> all(3, prefix_options(tier));
  all[1].salt = "another app";
  all[2].model[0] = std::byte{1};
  for (const PrefixStoreOptions& options : all) {
    PrefixStore store(options);
    EXPECT_EQ(run_with(model, store, request).result.figures.stored_tokens, 0U);
  }
  for (const PrefixStoreOptions& options : all) {
    PrefixStore store(options);
    EXPECT_EQ(run_with(model, store, request).result.figures.stored_tokens, 96U);
  }
}

TEST(PrefixStore, LongContextsHaveAnIdentityOfTheirOwn) {
  ModelConfig config;
  EXPECT_EQ(rope_choice(config, 1000), RopeChoice::kOnly);
  config.rope_factors_short = {1};
  config.rope_factors_long = {2};
  config.rope.original_context = 4096;
  EXPECT_EQ(rope_choice(config, 4096), RopeChoice::kShort);
  EXPECT_EQ(rope_choice(config, 4097), RopeChoice::kLong);
  config.context = 131072;
  EXPECT_EQ(rope_choice(config, 0), RopeChoice::kLong);
  const auto identity = [](RopeChoice rope) { return *model_kv_identity({}, rope, quick_digest); };
  EXPECT_NE(identity(RopeChoice::kOnly), identity(RopeChoice::kShort));
  EXPECT_NE(identity(RopeChoice::kLong), identity(RopeChoice::kShort));
}

TEST(PrefixStore, TheLastTokenIsAlwaysRead) {
  const auto model = load_for_batch(prefix_model());
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(6);
  const auto text = random_prompt(rng, 97);
  const auto first_of = [&](size_t n) {
    return sampled_request({text.begin(), text.begin() + static_cast<ptrdiff_t>(n)}, 2);
  };
  run_with(model, store, first_of(97));
  for (const size_t n : {97U, 96U, 65U, 64U, 33U, 32U, 2U, 1U}) {
    const auto request = first_of(n);
    const Prefixed run = run_with(model, store, request);
    const size_t want = (n - 1) / 32 * 32;
    EXPECT_EQ(run.result.figures.stored_tokens, want) << n;
    expect_same_answer(run.result, run_alone(model, request), std::to_string(n));
  }
}

/// A chat in one session: what is in memory is not read from the tier.
TEST(PrefixStore, MemoryComesFirst) {
  const auto model = load_for_batch(prefix_model());
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(7);
  auto request = sampled_request(random_prompt(rng, 250), 3);
  ASSERT_EQ(run_with(model, store, request).saved.tokens, 224U);
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->append(std::span(request.prompt).first(70), Purpose::kPrompt).ok());
  request.prefixes = &store;
  const auto result = generate(**session, request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->figures.reused_tokens, 224U);
  EXPECT_EQ(result->figures.stored_tokens, 160U);
  expect_same_answer(*result, run_alone(model, request), "from both");
  const size_t reads = tier.reads;
  const auto next = generate(**session, request);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->figures.reused_tokens, 249U);
  EXPECT_EQ(next->figures.stored_tokens, 0U);
  EXPECT_EQ(tier.reads, reads);
}

TEST(PrefixStore, ARecordOfOtherTokensIsRefused) {
  const auto model = load_for_batch(prefix_model());
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(8);
  const auto one = sampled_request(random_prompt(rng, 100), 3);
  const auto two = sampled_request(random_prompt(rng, 100), 3);
  run_with(model, store, one);
  // As a collision of digests would have it: every key finds the record of another text.
  tier.lie = tier.by_key.begin()->second;
  const Prefixed run = run_with(model, store, two);
  EXPECT_EQ(run.result.figures.stored_tokens, 0U);
  EXPECT_EQ(store.restored().reason, "the stored tokens are not those of the prompt");
  expect_same_answer(run.result, run_alone(model, two), "collision");
  EXPECT_EQ(tier.refusals, 1U);
  for (const size_t cut : {size_t{0}, size_t{40}, tier.lie->size() - 1}) {
    auto bytes = tier.by_key.begin()->second;
    bytes.resize(cut);
    tier.lie = bytes;
    expect_same_answer(run_with(model, store, one).result, run_alone(model, one), "damaged");
  }
  EXPECT_EQ(tier.refusals, 4U);
}

TEST(PrefixStore, AFullTierIsSaidAndHurtsNobody) {
  const auto model = load_for_batch(prefix_model());
  MemoryTier tier;
  tier.full = true;
  PrefixStore store(prefix_options(tier));
  Rng rng(9);
  const auto request = sampled_request(random_prompt(rng, 100), 3);
  const Prefixed run = run_with(model, store, request);
  expect_same_answer(run.result, run_alone(model, request), "full");
  EXPECT_EQ(run.saved.tokens, 0U);
  EXPECT_EQ(run.saved.reason, "full");
}

TEST(PrefixStore, OnlyWhatThePromptsArithmeticReadIsKept) {
  const auto model = load_for_batch(prefix_model(Precision::kFast));
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(10);
  const auto text = random_prompt(rng, 128);
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->append(std::span(text).first(64), Purpose::kPrompt).ok());
  ASSERT_TRUE((*session)->append(std::span(text).subspan(64), Purpose::kGeneration).ok());
  EXPECT_EQ(store.save(**session, text).tokens, 64U);
}

TEST(PrefixStore, WithAPolicyThatGivesUpKeysNothingIsKeptOrTaken) {
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(13);
  const auto request = sampled_request(random_prompt(rng, 300), 3);
  ASSERT_EQ(run_with(load_for_batch(prefix_model()), store, request).saved.tokens, 288U);
  ModelOptions options = prefix_model();
  options.eviction.policy = KvPolicy::kSnapKv;
  options.eviction.tokens = 96;
  const auto model = load_for_batch(std::move(options));
  const Prefixed run = run_with(model, store, request);
  EXPECT_EQ(run.result.figures.stored_tokens, 0U);
  EXPECT_FALSE(store.restored().reason.empty());
  EXPECT_EQ(run.saved.tokens, 0U);
  EXPECT_FALSE(run.saved.reason.empty());
  expect_same_answer(run.result, run_alone(model, request), "evicted");
}

TEST(PrefixStore, AHoleIsFilledAgain) {
  const auto model = load_for_batch(prefix_model());
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(11);
  const auto request = sampled_request(random_prompt(rng, 600), 2);
  EXPECT_EQ(run_with(model, store, request).saved.records, 3U);
  // The second record is lost.
  const auto head_of = [](const auto& entry) { return parse_record_head(entry.second)->first_token; };
  std::erase_if(tier.by_key, [&](const auto& entry) { return head_of(entry) == 256; });
  const Prefixed run = run_with(model, store, request);
  EXPECT_EQ(run.result.figures.stored_tokens, 256U);
  EXPECT_EQ(run.saved.tokens, 256U);
  const Prefixed whole = run_with(model, store, request);
  EXPECT_EQ(whole.result.figures.stored_tokens, 576U);
  expect_same_answer(whole.result, run_alone(model, request), "whole again");
}

/// Random texts with shared beginnings against cold runs.
TEST(PrefixStore, RandomTextsGiveTheBitsOfColdRuns) {
  const auto model = load_for_batch(prefix_model());
  MemoryTier tier;
  PrefixStore store(prefix_options(tier));
  Rng rng(12);
  std::vector<std::vector<TokenId>> texts = {random_prompt(rng, 400)};
  for (size_t round = 0; round < 40; ++round) {
    const auto& base = texts[rng.below(texts.size())];
    const auto keep = static_cast<ptrdiff_t>(rng.below(base.size()));
    auto text = both({base.begin(), base.begin() + keep}, random_prompt(rng, 1 + rng.below(200)));
    if (text.size() > 600) text.resize(600);
    const auto request = sampled_request(text, 2, round);
    const Prefixed run = run_with(model, store, request);
    expect_same_answer(run.result, run_alone(model, request), "round " + std::to_string(round));
    texts.push_back(std::move(text));
  }
  EXPECT_GT(store.restored().stored_tokens, 1000U);
  EXPECT_EQ(tier.refusals, 0U);
}

}  // namespace
}  // namespace isthmus
