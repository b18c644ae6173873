#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "engine/generate.h"

namespace isthmus {
namespace {

constexpr size_t kDraft = 7;

std::shared_ptr<LanguageModel> load_drafting(ModelOptions options = {},
                                             const std::string& name = "llama.gguf") {
  if (options.context == 0) options.context = 256;
  if (options.draft_tokens == 0) options.draft_tokens = kDraft;
  options.sequences = 2;
  auto model = LanguageModel::load(std::string(ISTHMUS_TINY_MODELS) + "/" + name, std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

std::unique_ptr<Session> drafting_session(const std::shared_ptr<LanguageModel>& model) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return std::move(*session);
}

/// A clock by which every step takes as long as any other, so that drafts always pay.
std::function<double()> steady_steps() {
  return [now = 0.0]() mutable { return now += 1; };
}

/// Text over six tokens, that of a model which repeats itself, with matches of a single token looked up.
GenerateRequest repeating_request(uint64_t seed, float temperature, size_t max_tokens = 60) {
  GenerateRequest r;
  r.prompt = {40, 41, 42, 43, 50, 51, 52, 50, 51, 53, 54, 50, 51, 52};
  r.max_tokens = max_tokens;
  r.ignore_stop_tokens = true;
  r.sampler.seed = seed;
  r.sampler.temperature = temperature;
  r.sampler.top_k = 0;
  r.sampler.min_p = 0;
  for (int32_t token = 50; token < 56; ++token) r.sampler.logit_bias.emplace_back(token, 100.0F);
  return r;
}

/// Everything that a run leaves behind.
struct Outcome {
  GenerateResult result;
  std::string streamed;
  std::vector<TokenId> held;
  std::vector<float> logits;
};

Outcome run(const std::shared_ptr<LanguageModel>& model, GenerateRequest request, bool speculate,
            Session* session = nullptr) {
  const auto own = session == nullptr ? drafting_session(model) : nullptr;
  Session& used = session == nullptr ? *own : *session;
  request.speculate.max_draft = speculate ? kDraft : 0;
  request.speculate.min_match = 1;
  request.speculate.clock = steady_steps();
  Outcome out;
  const auto on_text = request.on_text;
  request.on_text = [&](std::string_view text) {
    out.streamed += text;
    return !on_text || on_text(text);
  };
  auto result = generate(used, request);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (result.ok()) out.result = std::move(*result);
  out.held.assign(used.tokens().begin(), used.tokens().end());
  out.logits.assign(used.logits().begin(), used.logits().end());
  return out;
}

void expect_same(const std::vector<Sampled>& a, const std::vector<Sampled>& b) {
  const auto same = [](const std::vector<TokenLogprob>& x, const std::vector<TokenLogprob>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) {
      return p.token == q.token && p.logprob == q.logprob;
    });
  };
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token, b[i].token);
    EXPECT_EQ(a[i].logprob, b[i].logprob);
    EXPECT_EQ(a[i].final_logprob, b[i].final_logprob);
    EXPECT_TRUE(same(a[i].top, b[i].top) && same(a[i].top_final, b[i].top_final)) << "token " << i;
  }
}

void expect_same(const Outcome& plain, const Outcome& fast) {
  EXPECT_EQ(fast.result.tokens, plain.result.tokens);
  EXPECT_EQ(fast.result.text, plain.result.text);
  EXPECT_EQ(fast.streamed, plain.streamed);
  EXPECT_EQ(fast.result.reason, plain.result.reason);
  EXPECT_EQ(fast.result.stop_string, plain.result.stop_string);
  EXPECT_EQ(fast.held, plain.held);
  EXPECT_EQ(fast.logits, plain.logits);
  EXPECT_EQ(fast.result.figures.generated_tokens, plain.result.figures.generated_tokens);
  EXPECT_EQ(fast.result.figures.context_shifts, plain.result.figures.context_shifts);
  EXPECT_EQ(fast.result.figures.gap_seconds.size(), plain.result.figures.gap_seconds.size());
  expect_same(plain.result.details, fast.result.details);
}

/// Adds up what several runs drafted: a test of speculation in which nothing was drafted tests nothing.
struct Drafts {
  SpeculationFigures all;
  void add(const Outcome& outcome) {
    const SpeculationFigures& f = outcome.result.figures.speculation;
    EXPECT_LE(f.accepted, f.drafted);
    EXPECT_LE(f.steps, f.drafted);
    all.drafted += f.drafted;
    all.accepted += f.accepted;
    all.steps += f.steps;
  }
  void expect_both_kinds() const {
    EXPECT_GT(all.accepted, 0U);
    EXPECT_LT(all.accepted, all.drafted);
  }
};

TEST(Speculation, GivesTheTextOfThePlainRunAtEverySeed) {
  const auto model = load_drafting();
  Drafts drafts;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const float temperature : {0.0F, 0.3F, 1.0F}) {
      GenerateRequest request = repeating_request(seed, temperature);
      request.sampler.logprobs = 3;
      const Outcome plain = run(model, request, false);
      const Outcome fast = run(model, request, true);
      expect_same(plain, fast);
      EXPECT_EQ(plain.result.figures.speculation.steps, 0U);
      drafts.add(fast);
      if (HasFailure()) return;
    }
  }
  drafts.expect_both_kinds();
}

TEST(Speculation, EverySamplerStageSeesTheSameHistory) {
  const auto model = load_drafting();
  Drafts drafts;
  Rng rng(3);
  const auto pick = [&](std::initializer_list<float> values) {
    return values.begin()[rng.below(values.size())];
  };
  for (uint64_t seed = 0; seed < 60; ++seed) {
    GenerateRequest request = repeating_request(seed, pick({0.0F, 0.2F, 0.7F, 1.5F}));
    SamplerParams& p = request.sampler;
    p.repetition_penalty = pick({1.0F, 1.02F, 1.3F});
    p.presence_penalty = pick({0.0F, 0.2F, -0.5F});
    p.frequency_penalty = pick({0.0F, 0.05F, -0.2F});
    p.penalty_window = static_cast<uint32_t>(pick({0, 3, 20}));
    p.top_k = static_cast<uint32_t>(pick({0, 2, 4}));
    p.top_p = pick({1.0F, 0.9F});
    p.min_p = pick({0.0F, 0.1F});
    p.typical = pick({1.0F, 0.9F});
    p.logprobs = static_cast<uint32_t>(pick({0, 2}));
    const Outcome fast = run(model, request, true);
    expect_same(run(model, request, false), fast);
    drafts.add(fast);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  drafts.expect_both_kinds();
}

TEST(Speculation, HoldsForEveryFamilyPrecisionAndThreadCount) {
  for (const char* name : {"llama.gguf", "gemma3.gguf", "qwen2.gguf", "qwen3.gguf", "phi3.gguf"}) {
    for (const Precision precision : {Precision::kDefault, Precision::kFast, Precision::kReference}) {
      for (const size_t threads : {1, 3}) {
        ModelOptions options;
        options.precision = precision;
        options.threads = threads;
        const auto model = load_drafting(std::move(options), name);
        Drafts drafts;
        for (uint64_t seed = 0; seed < 4; ++seed) {
          const GenerateRequest request = repeating_request(seed, seed < 2 ? 0.0F : 0.5F);
          const Outcome fast = run(model, request, true);
          expect_same(run(model, request, false), fast);
          drafts.add(fast);
        }
        EXPECT_GT(drafts.all.accepted, 0U);
        ASSERT_FALSE(HasFailure()) << name << ", " << threads << " threads";
      }
    }
  }
}

TEST(Speculation, EndsWhereThePlainRunEnds) {
  const auto model = load_drafting();
  Drafts drafts;
  for (size_t most = 0; most < 40; ++most) {
    const GenerateRequest request = repeating_request(most, 0.3F, most);
    const Outcome fast = run(model, request, true);
    expect_same(run(model, request, false), fast);
    drafts.add(fast);
  }
  drafts.expect_both_kinds();
  const std::string text = run(model, repeating_request(1, 0.3F), false).result.text;
  for (size_t at = 0; at + 4 < text.size(); at += 3) {
    GenerateRequest request = repeating_request(1, 0.3F);
    request.stops = {text.substr(at, 4)};
    const Outcome fast = run(model, request, true);
    expect_same(run(model, request, false), fast);
    EXPECT_EQ(fast.result.reason, FinishReason::kStopString);
  }
}

TEST(Speculation, AStopTokenInsideADraftEndsTheRun) {
  const auto model = load_drafting();
  const auto& stops = model->tokenizer().stop_tokens();
  ASSERT_FALSE(stops.empty());
  Drafts drafts;
  size_t stopped = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    GenerateRequest request = repeating_request(seed, 0.5F);
    request.ignore_stop_tokens = false;
    request.prompt.insert(request.prompt.end(), {50, 51, stops[0], 52, 50, 51});
    request.sampler.logit_bias.emplace_back(stops[0], 100.0F + static_cast<float>(seed % 20));
    const Outcome fast = run(model, request, true);
    expect_same(run(model, request, false), fast);
    stopped += fast.result.reason == FinishReason::kStopToken ? 1 : 0;
    drafts.add(fast);
  }
  EXPECT_GT(stopped, 10U);
  EXPECT_GT(drafts.all.drafted, 0U);
}

TEST(Speculation, AFullContextStopsOrShiftsAtTheSameToken) {
  Drafts drafts;
  for (const size_t context : {15, 33, 64}) {
    ModelOptions options;
    options.context = context;
    const auto model = load_drafting(std::move(options));
    for (const ContextPolicy policy : {ContextPolicy::kStop, ContextPolicy::kShift}) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        GenerateRequest request = repeating_request(seed, 0.4F, 150);
        request.on_full = policy;
        request.keep_tokens = 3;
        const Outcome fast = run(model, request, true);
        expect_same(run(model, request, false), fast);
        drafts.add(fast);
        ASSERT_FALSE(HasFailure()) << "context " << context << ", seed " << seed;
      }
    }
  }
  drafts.expect_both_kinds();
}

TEST(Speculation, AContextShorterThanADraftWorks) {
  for (const size_t context : {1, 2, 5}) {
    ModelOptions options;
    options.context = context;
    const auto model = load_drafting(std::move(options));
    GenerateRequest request = repeating_request(1, 0, 40);
    request.prompt = {50};
    request.on_full = context > 1 ? ContextPolicy::kShift : ContextPolicy::kStop;
    expect_same(run(model, request, false), run(model, request, true));
  }
}

TEST(Speculation, CancelledRunsLeaveAUsableSession) {
  const auto model = load_drafting();
  for (size_t at = 1; at < 30; at += 2) {
    for (const bool by_text : {false, true}) {
      const auto plain_session = drafting_session(model);
      const auto fast_session = drafting_session(model);
      const auto cancelled = [&](Session& session, bool speculate) {
        CancelSource source;
        size_t seen = 0;
        GenerateRequest request = repeating_request(2, 0.2F);
        request.stop.token = source.token();
        if (by_text) {
          request.on_text = [&](std::string_view) { return ++seen < at; };
        } else {
          request.on_token = [&](const Sampled&) {
            if (++seen == at) source.cancel();
          };
        }
        return run(model, request, speculate, &session);
      };
      const Outcome plain = cancelled(*plain_session, false);
      const Outcome fast = cancelled(*fast_session, true);
      EXPECT_EQ(plain.result.reason, FinishReason::kCancelled);
      expect_same(plain, fast);
      // The next turn finds its prefix and says the same.
      GenerateRequest next = repeating_request(5, 0.2F);
      next.prompt.insert(next.prompt.end(), plain.result.tokens.begin(), plain.result.tokens.end());
      next.prompt.push_back(60);
      const Outcome next_fast = run(model, next, true, fast_session.get());
      expect_same(run(model, next, false, plain_session.get()), next_fast);
      EXPECT_GE(next_fast.result.figures.reused_tokens, 14U);
      ASSERT_FALSE(HasFailure()) << "at " << at;
    }
  }
}

TEST(Speculation, WithoutRoomForADraftOneTokenIsRead) {
  // A pool of three blocks per stream for two sequences: the other session leaves room for one token at most
  // places, and a draft over the border of a block finds none.
  ModelOptions options;
  options.context = 96;
  options.kv_tokens = 96;
  const auto model = load_drafting(std::move(options));
  const auto other = drafting_session(model);
  const std::vector<TokenId> filling(33, 45);
  ASSERT_TRUE(other->append(filling, Purpose::kPrompt).ok());
  GenerateRequest request = repeating_request(3, 0, 19);  // 14 + 18 tokens: one block
  const Outcome fast = run(model, request, true);
  ASSERT_EQ(fast.result.tokens.size(), 19U);
  EXPECT_GT(fast.result.figures.speculation.accepted, 0U);
  const auto roomy = load_drafting();
  EXPECT_EQ(fast.result.tokens, run(roomy, request, false).result.tokens);
}

/// Proposes what is known to come, or what is known to be wrong.
class Prophet : public Proposer {
 public:
  Prophet(std::vector<TokenId> text, bool honest) : text_(std::move(text)), honest_(honest) {}
  void push(TokenId) override { ++at_; }
  Draft propose(std::span<TokenId> out) override {
    const size_t n = std::min(out.size(), text_.size() - std::min(at_, text_.size()));
    for (size_t i = 0; i < n; ++i) out[i] = honest_ ? text_[at_ + i] : (text_[at_ + i] + 1) % 200;
    return {n, 30};
  }

 private:
  std::vector<TokenId> text_;
  bool honest_;
  size_t at_ = 0;
};

/// Reads `text` behind the prompt through a reader and returns the logits before each token.
std::vector<std::vector<float>> read_all(Session& session, Proposer* proposer,
                                         const std::vector<TokenId>& text, SpeculationFigures& figures) {
  const std::vector<TokenId> prompt = {40, 41, 42};
  EXPECT_TRUE(session.append(prompt, Purpose::kPrompt).ok());
  SpeculateOptions options;
  options.max_draft = kDraft;
  options.clock = steady_steps();
  auto reader = SpeculativeReader::create(session, options, std::unique_ptr<Proposer>(proposer));
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  std::vector<std::vector<float>> rows;
  for (const TokenId token : text) {
    rows.emplace_back((*reader)->logits().begin(), (*reader)->logits().end());
    if ((*reader)->take(token)) continue;
    EXPECT_TRUE((*reader)->read(token, kDraft).ok());
  }
  (*reader)->settle();
  figures = (*reader)->figures();
  return rows;
}

TEST(Speculation, AnyProposerGivesTheSameLogits) {
  const auto model = load_drafting();
  Rng rng(4);
  std::vector<TokenId> text(120);
  for (auto& token : text) token = static_cast<TokenId>(rng.below(280));
  SpeculationFigures right, wrong;
  const auto a = drafting_session(model);
  const auto b = drafting_session(model);
  const auto by_right = read_all(*a, new Prophet(text, true), text, right);
  const auto by_wrong = read_all(*b, new Prophet(text, false), text, wrong);
  EXPECT_EQ(by_right, by_wrong);
  EXPECT_EQ(right.accepted, right.drafted);
  EXPECT_GT(right.accepted, 90U);
  EXPECT_EQ(wrong.accepted, 0U);
  EXPECT_GT(wrong.drafted, 0U);
  EXPECT_LT(wrong.steps, 40U);  // it learns, though these drafts cost nothing
  EXPECT_EQ(std::vector<TokenId>(a->tokens().begin(), a->tokens().end()),
            std::vector<TokenId>(b->tokens().begin(), b->tokens().end()));
}

TEST(Speculation, BadOptionsAndMissingMemoryAreTyped) {
  const auto model = load_drafting();
  const auto session = drafting_session(model);
  GenerateRequest request = repeating_request(1, 0);
  request.speculate.max_draft = kDraft + 1;
  EXPECT_EQ(generate(*session, request).status().code(), Code::kInvalidArgument);
  request.speculate.max_draft = kDraft;
  EXPECT_TRUE(generate(*session, request).ok());

  const std::string path = std::string(ISTHMUS_TINY_MODELS) + "/llama.gguf";
  ModelOptions options;
  options.context = 256;
  const auto without = LanguageModel::plan(path, options);
  options.draft_tokens = kDraft;
  const auto with = LanguageModel::plan(path, options);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_GT(with->memory.work, without->memory.work + kDraft * model->config().vocab * sizeof(float));
  options.memory_limit = with->total();
  const auto fitting = LanguageModel::load(path, options);
  ASSERT_TRUE(fitting.ok()) << fitting.status().to_string();
  const auto session_in_limit = drafting_session(*fitting);
  EXPECT_TRUE(generate(*session_in_limit, request).ok());
  EXPECT_LE((*fitting)->ledger().peak(), with->total());
  options.draft_tokens = kMostDraftTokens + 1;
  EXPECT_EQ(LanguageModel::plan(path, options).status().code(), Code::kInvalidArgument);
}

TEST(Speculation, ChainsOfASessionAreKeptOrForgotten) {
  const auto model = load_drafting();
  const auto session = drafting_session(model);
  const std::vector<TokenId> prompt = {40, 41, 42};
  const std::vector<TokenId> chain = {50, 51, 52, 53};
  ASSERT_TRUE(session->append(prompt, Purpose::kPrompt).ok());
  EXPECT_EQ(session->try_chain(chain).code(), Code::kInvalidArgument);  // no memory reserved
  EXPECT_EQ(session->reserve_chain(kDraft + 2).code(), Code::kInvalidArgument);
  ASSERT_TRUE(session->reserve_chain(4).ok());
  EXPECT_EQ(session->keep_chain(0).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(session->try_chain(chain).ok());
  EXPECT_TRUE(session->logits().empty());
  EXPECT_EQ(session->chain_logits(3).size(), model->config().vocab);
  EXPECT_TRUE(session->chain_logits(4).empty());
  EXPECT_EQ(session->keep_chain(5).code(), Code::kInvalidArgument);
  ASSERT_TRUE(session->keep_chain(2).ok());
  EXPECT_EQ(session->tokens().size(), 5U);
  const auto fork = session->fork();
  ASSERT_TRUE(fork.ok());
  const auto one_by_one = drafting_session(model);
  ASSERT_TRUE(one_by_one->append(prompt, Purpose::kPrompt).ok());
  for (const TokenId token : {50, 51})
    ASSERT_TRUE(one_by_one->append({&token, 1}, Purpose::kGeneration).ok());
  const auto rows_equal = [](const Session& a, const Session& b) {
    return std::equal(a.logits().begin(), a.logits().end(), b.logits().begin(), b.logits().end());
  };
  EXPECT_FALSE(session->logits().empty());
  EXPECT_TRUE(rows_equal(*session, *one_by_one));
  EXPECT_TRUE(rows_equal(**fork, *one_by_one));
  ASSERT_TRUE(session->try_chain(chain).ok());
  ASSERT_TRUE(session->truncate(5).ok());
  EXPECT_EQ(session->keep_chain(1).code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace isthmus
