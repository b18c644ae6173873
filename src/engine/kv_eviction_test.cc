// Eviction through the model: what is off changes no bit, what is evicted is as if it were hidden, sessions
// live on.
#include "engine/kv_eviction.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/batcher.h"
#include "engine/batcher_test_util.h"
#include "engine/evaluate.h"
#include "engine/generate.h"

namespace isthmus {
namespace {

using batch_testing::random_prompt;
using batch_testing::sampled_request;

constexpr KvPolicy kEvicting[] = {KvPolicy::kWindow,    KvPolicy::kRandom, KvPolicy::kSnapKv,
                                  KvPolicy::kPyramidKv, KvPolicy::kAdaKv,  KvPolicy::kExpected,
                                  KvPolicy::kKeyDiff,   KvPolicy::kKvZip};

std::shared_ptr<LanguageModel> load_evicting(const std::string& name, const EvictionOptions& eviction,
                                             KvType type = KvType::kF16) {
  ModelOptions options;
  options.context = 256;
  options.sequences = 3;
  options.threads = 2;
  options.step_tokens = 64;
  options.step_outputs = 64;
  options.kv_type = type;
  options.eviction = eviction;
  auto model = LanguageModel::load(std::string(ISTHMUS_TINY_MODELS) + "/" + name, std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

EvictionOptions eviction_of(KvPolicy policy, double share, size_t tokens = 0) {
  EvictionOptions out;
  out.policy = policy;
  out.share = share;
  out.tokens = tokens;
  return out;
}

std::vector<TokenId> prompt_of(size_t n, uint64_t seed = 3) {
  Rng rng(seed);
  return random_prompt(rng, n);
}

GenerateResult answer_of(const std::shared_ptr<LanguageModel>& model, const std::vector<TokenId>& prompt) {
  const auto session = Session::create(model).value();
  auto result = generate(*session, sampled_request(prompt, 20));
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return *result;
}

TEST(Eviction, KeepingAllChangesNoBit) {
  for (const char* name : {"llama.gguf", "qwen2.gguf", "gemma3.gguf"}) {
    const auto prompt = prompt_of(120);
    const auto plain = answer_of(load_evicting(name, {}), prompt);
    for (const KvPolicy policy : kEvicting) {
      const auto same = answer_of(load_evicting(name, eviction_of(policy, 1.0)), prompt);
      ASSERT_EQ(same.tokens, plain.tokens) << name << " " << kv_policy_name(policy);
      for (size_t i = 0; i < plain.details.size(); ++i) {
        ASSERT_EQ(same.details[i].logprob, plain.details[i].logprob) << name << " " << kv_policy_name(policy);
      }
    }
  }
}

TEST(Eviction, GivesUpKeysAndBytes) {
  for (const char* name : {"llama.gguf", "gemma3.gguf"}) {
    for (const KvPolicy policy : kEvicting) {
      const auto model = load_evicting(name, eviction_of(policy, 0.5));
      const auto session = Session::create(model).value();
      ASSERT_TRUE(session->append(prompt_of(200), Purpose::kPrompt).ok());
      const uint64_t before = session->kv_bytes();
      const std::vector<float> logits(session->logits().begin(), session->logits().end());
      ASSERT_TRUE(session->evict().ok());
      EXPECT_TRUE(session->pruned());
      EXPECT_LT(session->kv_bytes(), before);
      EXPECT_EQ(std::vector<float>(session->logits().begin(), session->logits().end()), logits);
      const EvictionReport& report = session->eviction()->report();
      EXPECT_NEAR(static_cast<double>(report.keys_after), 0.5 * static_cast<double>(report.keys_before),
                  0.01 * static_cast<double>(report.keys_before))
          << name << " " << kv_policy_name(policy);
    }
  }
}

/// The text's logits after `question`, from a sequence that holds `text` and has lost keys in one way or
/// another.
std::vector<float> logits_after(const LanguageModel& model, Workspace& workspace, KvSequence& kv,
                                const std::vector<TokenId>& question) {
  EXPECT_TRUE(kv.grow(question.size()).ok());
  const ForwardSequence sequence{&kv, question, {}};
  const auto newest = static_cast<uint32_t>(question.size() - 1);
  std::vector<float> logits(model.config().vocab);
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = model.prompt_compute();
  step.outputs = {&newest, 1};
  step.logits = logits.data();
  EXPECT_TRUE(model.transformer().forward(step, workspace, const_cast<LanguageModel&>(model).pool()).ok());
  kv.commit(question.size());
  return logits;
}

TEST(Eviction, IsAsIfTheKeysWereHidden) {
  for (const char* name : {"llama.gguf", "qwen2.gguf", "gemma3.gguf"}) {
    const auto model = load_evicting(name, {}, KvType::kF32);
    const auto workspace = model->make_workspace().value();
    const ModelConfig& config = model->config();
    Rng rng(5);
    KvSequence evicted = model->make_sequence();
    KvSequence hidden = model->make_sequence();
    const auto text = prompt_of(64);
    logits_after(*model, *workspace, evicted, text);
    logits_after(*model, *workspace, hidden, text);
    for (size_t layer = 0; layer < config.layers; ++layer) {
      if (config.is_local(layer)) continue;
      for (size_t head = 0; head < config.n_kv_heads; ++head) {
        std::vector<uint32_t> kept;
        uint32_t valid[2] = {0, 0};
        for (uint32_t i = 0; i < 64; ++i) {
          if (rng() % 3 == 0) continue;
          kept.push_back(i);
          valid[i / 32] |= 1U << (i % 32);
        }
        ASSERT_TRUE(evicted.keep_keys(layer, head, kept).ok());
        for (size_t block = 0; block < 2; ++block) {
          std::vector<BlockId> ids;
          hidden.share_block(block, ids);
          hidden.pool()->header(ids[layer * config.n_kv_heads + head]).valid = valid[block];
          for (const BlockId id : ids) hidden.pool()->release(id);
        }
      }
    }
    KvSequence masked = model->make_sequence();  // takes up what the headers say
    for (size_t block = 0; block < 2; ++block) {
      std::vector<BlockId> ids;
      hidden.share_block(block, ids);
      masked.append_shared(ids, kBlockKeys);
      for (const BlockId id : ids) hidden.pool()->release(id);
    }
    const auto question = prompt_of(30, 9);
    const auto got = logits_after(*model, *workspace, evicted, question);
    const auto wanted = logits_after(*model, *workspace, masked, question);
    double most = 0;
    double size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::abs(double{got[i]} - double{wanted[i]}));
      size = std::max(size, std::abs(double{wanted[i]}));
    }
    EXPECT_LT(most, 1e-4 * size) << name;
  }
}

TEST(Eviction, AChatGoesOnAndAnEditReadsAnew) {
  for (const KvPolicy policy : kEvicting) {
    const auto model = load_evicting("llama.gguf", eviction_of(policy, 0.5));
    const auto session = Session::create(model).value();
    const auto first = generate(*session, sampled_request(prompt_of(100), 10));
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    std::vector<TokenId> turn(session->tokens().begin(), session->tokens().end());
    const size_t held = turn.size();
    const auto more = prompt_of(40, 8);
    turn.insert(turn.end(), more.begin(), more.end());
    const auto second = generate(*session, sampled_request(turn, 10));
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    EXPECT_EQ(second->figures.reused_tokens, held);
    // Another text with the same beginning: the keys of that beginning are not all there any more.
    const auto other = prompt_of(60);
    const auto third = generate(*session, sampled_request(other, 10));
    ASSERT_TRUE(third.ok()) << third.status().to_string();
    EXPECT_EQ(third->figures.reused_tokens, 0U);
    auto alone = answer_of(model, other).tokens;
    alone.resize(10);
    EXPECT_EQ(third->tokens, alone);
  }
}

TEST(Eviction, AForkEvictsForItself) {
  const auto model = load_evicting("llama.gguf", eviction_of(KvPolicy::kSnapKv, 0.5));
  const auto session = Session::create(model).value();
  ASSERT_TRUE(session->append(prompt_of(150), Purpose::kPrompt).ok());
  const auto fork = session->fork().value();
  ASSERT_TRUE(fork->evict().ok());
  EXPECT_TRUE(fork->pruned());
  EXPECT_FALSE(session->pruned());
  ASSERT_TRUE(session->evict().ok());  // the same queries, the same choice
  const auto more = prompt_of(5, 4);
  ASSERT_TRUE(session->append(more, Purpose::kPrompt).ok());
  ASSERT_TRUE(fork->append(more, Purpose::kPrompt).ok());
  EXPECT_EQ(std::vector<float>(session->logits().begin(), session->logits().end()),
            std::vector<float>(fork->logits().begin(), fork->logits().end()));
}

TEST(Eviction, AWindowHoldsItsBudgetWhileTheTextGrows) {
  const auto model = load_evicting("llama.gguf", eviction_of(KvPolicy::kWindow, 0.5, 64));
  const auto session = Session::create(model).value();
  size_t most = 0;
  for (int i = 0; i < 200; ++i) {
    const TokenId token = 40 + i % 100;
    ASSERT_TRUE(session->append({&token, 1}, Purpose::kGeneration).ok());
    most = std::max(most, static_cast<size_t>(session->kv_bytes()));
  }
  // Never more than the budget, a block that is being filled, and the one that goes next.
  const auto full = Session::create(load_evicting("llama.gguf", {})).value();
  ASSERT_TRUE(full->append(prompt_of(128), Purpose::kPrompt).ok());
  EXPECT_LE(most, full->kv_bytes());
}

TEST(Eviction, AStreamHasNoEndAndHoldsItsBudget) {
  const auto model = load_evicting("llama.gguf", eviction_of(KvPolicy::kStreaming, 1.0, 96));
  const auto session = Session::create(model).value();
  const auto text = prompt_of(1000);
  ASSERT_TRUE(session->append(text, Purpose::kPrompt).ok());  // four times the context
  EXPECT_EQ(session->tokens().size(), 1000U);
  EXPECT_TRUE(session->pruned());
  const uint64_t held = session->kv_bytes();
  auto request = sampled_request(text, 300);
  const auto result = generate(*session, request);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->tokens.size(), 300U);
  EXPECT_EQ(result->figures.context_shifts, 0U);
  EXPECT_LE(session->kv_bytes(), held + held / 4);
  EXPECT_TRUE(result->figures.kv.pruned);
  // The newest tokens can be taken back, older ones not.
  const size_t length = session->tokens().size();
  ASSERT_TRUE(session->truncate(length - 20).ok());
  EXPECT_EQ(session->truncate(500).code(), Code::kFailedPrecondition);
  EXPECT_EQ(session->tokens().size(), length - 20);
  ASSERT_TRUE(session->truncate(0).ok());
  EXPECT_FALSE(session->pruned());
}

TEST(Eviction, AShortTextStreamsWithTheBitsOfTheWholeCache) {
  // The same encoding of keys, once without a need to give any up.
  const auto prompt = prompt_of(60);
  const auto roomy =
      answer_of(load_evicting("qwen2.gguf", eviction_of(KvPolicy::kStreaming, 1.0, 190)), prompt);
  const auto tight =
      answer_of(load_evicting("qwen2.gguf", eviction_of(KvPolicy::kStreaming, 1.0, 96)), prompt);
  EXPECT_EQ(roomy.tokens, tight.tokens);
  EXPECT_FALSE(roomy.figures.kv.pruned);
  for (size_t i = 0; i < roomy.details.size(); ++i)
    EXPECT_EQ(roomy.details[i].logprob, tight.details[i].logprob);
}

TEST(Eviction, AStreamSaysWhatItHolds) {
  const auto model = load_evicting("llama.gguf", eviction_of(KvPolicy::kStreaming, 1.0, 64));
  const auto session = Session::create(model).value();
  const auto text = prompt_of(64 + 32);
  ASSERT_TRUE(session->append(std::span(text).first(64), Purpose::kPrompt).ok());
  ASSERT_FALSE(session->pruned());
  ASSERT_TRUE(session->append(std::span(text).subspan(64), Purpose::kPrompt).ok());
  EXPECT_TRUE(session->pruned());
  EXPECT_EQ(session->eviction()->report().keys_before, 96U);
  EXPECT_EQ(session->eviction()->report().keys_after, 64U);
}

TEST(Eviction, StreamingNeedsABudgetThatFits) {
  for (const size_t tokens : {size_t{0}, size_t{40}, size_t{250}}) {
    ModelOptions options;
    options.context = 256;
    options.eviction = eviction_of(KvPolicy::kStreaming, 1.0, tokens);
    EXPECT_EQ(LanguageModel::load(ISTHMUS_TINY_MODELS "/llama.gguf", std::move(options)).status().code(),
              Code::kInvalidArgument)
        << tokens;
  }
}

TEST(Eviction, ScoresWhatFollowsTheEvictedPart) {
  const auto text = prompt_of(120);
  const auto mean_of = [&](const EvictionOptions& eviction) {
    const auto scorer = Scorer::create(load_evicting("llama.gguf", eviction)).value();
    std::vector<float> all;
    EXPECT_TRUE(scorer
                    ->score(text, 80, 119, ScoreMode::kWindow, {},
                            [&](size_t, std::span<float> logits) {
                              all.insert(all.end(), logits.begin(), logits.end());
                              return ok_status();
                            })
                    .ok());
    return all;
  };
  const auto full = mean_of({});
  EXPECT_EQ(mean_of(eviction_of(KvPolicy::kSnapKv, 1.0)), full);
  EXPECT_NE(mean_of(eviction_of(KvPolicy::kSnapKv, 0.5)), full);
  EXPECT_EQ(full.size(), mean_of(eviction_of(KvPolicy::kWindow, 0.5)).size());
}

TEST(Eviction, IsRefusedWhereItCannotBe) {
  const auto model = load_evicting("llama.gguf", eviction_of(KvPolicy::kSnapKv, 0.5));
  EXPECT_EQ(Batcher::create(model, {}).status().code(), Code::kUnsupported);
  const auto session = Session::create(model).value();
  auto drafting = sampled_request(prompt_of(50), 5);
  drafting.speculate.max_draft = 1;
  EXPECT_EQ(generate(*session, drafting).status().code(), Code::kUnsupported);
  EXPECT_EQ(session->set_eviction(eviction_of(KvPolicy::kSnapKv, 2.0)).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->evict().code(), Code::kFailedPrecondition);  // no query was asked yet
  ASSERT_TRUE(session->append(prompt_of(50), Purpose::kPrompt).ok());
  EXPECT_TRUE(session->evict().ok());
}

TEST(Eviction, KvZipNeedsRoomToRepeatAndLeavesWhatItReadNoTrace) {
  const auto model = load_evicting("llama.gguf", eviction_of(KvPolicy::kKvZip, 0.5));
  const auto full = Session::create(model).value();
  ASSERT_TRUE(full->append(prompt_of(180), Purpose::kPrompt).ok());
  const auto fork = full->fork().value();
  ASSERT_TRUE(full->evict().ok());
  ASSERT_TRUE(fork->evict().ok());
  EXPECT_EQ(full->tokens().size(), 180U);
  const TokenId next = 20;
  ASSERT_TRUE(full->append({&next, 1}, Purpose::kGeneration).ok());
  ASSERT_TRUE(fork->append({&next, 1}, Purpose::kGeneration).ok());
  EXPECT_EQ(std::vector<float>(full->logits().begin(), full->logits().end()),
            std::vector<float>(fork->logits().begin(), fork->logits().end()));
  // Keys that were kept once are kept again, as far as the budget goes.
  ASSERT_TRUE(full->append(prompt_of(10), Purpose::kPrompt).ok());
  const uint64_t before = full->eviction()->report().keys_after;
  EXPECT_TRUE(full->evict().ok());
  EXPECT_GT(full->eviction()->report().keys_after, before);
  const auto long_one = Session::create(model).value();
  ASSERT_TRUE(long_one->append(prompt_of(255), Purpose::kPrompt).ok());
  EXPECT_EQ(long_one->evict().code(), Code::kResourceExhausted);
  EXPECT_FALSE(long_one->pruned());
}

TEST(Eviction, AFullContextShiftsAsEver) {
  const auto model = load_evicting("llama.gguf", eviction_of(KvPolicy::kAdaKv, 0.5));
  const auto session = Session::create(model).value();
  auto request = sampled_request(prompt_of(200), 150);
  request.on_full = ContextPolicy::kShift;
  request.keep_tokens = 10;
  const auto result = generate(*session, request);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_GE(result->figures.context_shifts, 1U);
  EXPECT_EQ(result->tokens.size(), 150U);
}

}  // namespace
}  // namespace isthmus
