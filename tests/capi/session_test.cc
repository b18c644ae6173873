// Sessions, trees, forks, sampling, generating, cancelling, threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <thread>

#include "capi_testing.h"

extern "C" isthmus_code pure_c_generate(const char* path, const char* text, isthmus_token* out, size_t count);

namespace isthmus_capi_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const isthmus::Model& model() {
  static const isthmus::Model loaded(tiny("llama"), small_options());
  return loaded;
}

isthmus::GenerateOptions greedy(size_t max_tokens) {
  isthmus::GenerateOptions options;
  options.sampler = isthmus::SamplerParams::greedy();
  options.max_tokens = max_tokens;
  options.ignore_stop_tokens = true;
  return options;
}

TEST(CapiSession, StepByStepEqualsGenerate) {
  const auto prompt = model().tokenize("Once upon a time");
  isthmus::Session whole(model());
  const auto run = whole.generate(prompt, greedy(12));
  ASSERT_THAT(run.tokens(), SizeIs(12));

  isthmus::Session stepped(model());
  isthmus::Sampler sampler(model(), isthmus::SamplerParams::greedy());
  stepped.append(prompt);
  isthmus::Tokens tokens;
  for (int i = 0; i < 12; ++i) {
    tokens.push_back(sampler.sample(stepped).token);
    stepped.append({tokens.back()}, ISTHMUS_GENERATION);
  }
  EXPECT_EQ(tokens, run.tokens());

  isthmus::Tokens from_c(12);
  ASSERT_EQ(pure_c_generate(tiny("llama").c_str(), "Once upon a time", from_c.data(), from_c.size()),
            ISTHMUS_OK);
  EXPECT_EQ(from_c, run.tokens());
}

TEST(CapiSession, ForkAndTruncateEqualAFreshRun) {
  const auto prompt = model().tokenize("The quick brown fox jumps over the lazy dog, twice");
  isthmus::Session session(model());
  session.append(prompt);
  const auto expected = session.logits();
  isthmus::Session fork = session.fork();
  EXPECT_EQ(fork.logits(), expected);
  fork.append(model().tokenize(" and away"), ISTHMUS_GENERATION);
  EXPECT_EQ(session.logits(), expected);
  EXPECT_EQ(session.tokens(), prompt);

  fork.truncate(prompt.size() - 1);
  EXPECT_EQ(code_of([&] { fork.logits(); }), ISTHMUS_FAILED_PRECONDITION);
  session.truncate(prompt.size() - 1);
  fork.append({prompt.back()}, ISTHMUS_GENERATION);
  session.append({prompt.back()}, ISTHMUS_GENERATION);
  EXPECT_EQ(fork.logits(), session.logits());
  EXPECT_EQ(code_of([&] { fork.truncate(1000); }), ISTHMUS_INVALID_ARGUMENT);
}

/// A session with the prompt and then `tokens`, read one by one.
isthmus::Session read_in_a_row(const isthmus::Tokens& prompt, const isthmus::Tokens& tokens) {
  isthmus::Session session(model());
  session.append(prompt);
  for (const auto token : tokens) session.append({token}, ISTHMUS_GENERATION);
  return session;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], wanted[i]) << "logit " << i;
}

TEST(CapiSession, TreeEqualsTheSameTokensInARow) {
  const auto prompt = model().tokenize("A tree has");
  const size_t vocab = model().facts().vocab;
  isthmus::Session session(model());
  session.append(prompt);
  const isthmus::Tokens tokens = {65, 66, 67, 68};
  const std::vector<int32_t> parents = {-1, 0, -1, 2};  // the branches 65 66 and 67 68
  const float* rows = session.try_tree(tokens, parents);
  const auto row = [&](size_t i) { return std::vector<float>(rows + i * vocab, rows + (i + 1) * vocab); };

  isthmus::Session first = read_in_a_row(prompt, {65, 66});
  isthmus::Session second = read_in_a_row(prompt, {67, 68});
  EXPECT_EQ(row(1), first.logits());
  // Keys of the first branch lie between the text and the second one, which changes the order of the sums.
  expect_near(row(3), second.logits());

  EXPECT_EQ(code_of([&] { session.accept({0, 3}); }), ISTHMUS_INVALID_ARGUMENT);
  isthmus::Session other = session.fork();
  session.accept({0, 1});
  EXPECT_EQ(session.tokens(), first.tokens());
  session.append({69}, ISTHMUS_GENERATION);
  first.append({69}, ISTHMUS_GENERATION);
  EXPECT_EQ(session.logits(), first.logits());

  other.try_tree(tokens, parents);
  other.accept({2, 3});
  EXPECT_EQ(other.tokens(), second.tokens());
  other.append({69}, ISTHMUS_GENERATION);
  second.append({69}, ISTHMUS_GENERATION);
  expect_near(other.logits(), second.logits());
}

TEST(CapiSession, BadTreesAndTokensAreTypedErrors) {
  isthmus::Session session(model());
  EXPECT_EQ(code_of([&] { session.logits(); }), ISTHMUS_FAILED_PRECONDITION);
  session.append({65});
  EXPECT_EQ(code_of([&] { session.try_tree({}, {}); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { session.try_tree({65}, {0}); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { session.try_tree({65, 66}, {-1, 7}); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { session.try_tree({900}, {-1}); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_THAT(message_of([&] { session.try_tree(isthmus::Tokens(9, 65), std::vector<int32_t>(9, -1)); }),
              HasSubstr("tree_tokens"));
  EXPECT_EQ(code_of([&] { session.accept({0}); }), ISTHMUS_FAILED_PRECONDITION);
  EXPECT_EQ(code_of([&] { session.accept({}); }), ISTHMUS_FAILED_PRECONDITION);
  EXPECT_THAT(message_of([&] { session.append({65, 300}); }), HasSubstr("tokens[1] is 300"));
  EXPECT_EQ(session.tokens(), isthmus::Tokens({65}));
  EXPECT_EQ(code_of([&] { session.append(isthmus::Tokens(512, 65)); }), ISTHMUS_RESOURCE_EXHAUSTED);
  EXPECT_EQ(session.tokens(), isthmus::Tokens({65}));
}

TEST(CapiSampler, ParametersAndLogitsAreChecked) {
  isthmus::SamplerParams params;
  params.top_p = 2;
  EXPECT_THAT(message_of([&] { isthmus::Sampler(model(), params); }), HasSubstr("top_p"));
  const isthmus_logit_bias bias[] = {{5000, 1.0F}};
  params = {};
  params.logit_bias = bias;
  params.logit_bias_count = 1;
  EXPECT_THAT(message_of([&] { isthmus::Sampler(model(), params); }), HasSubstr("logit_bias"));

  params = isthmus::SamplerParams::greedy();
  params.logprobs = 2;
  isthmus_sampler* sampler = nullptr;
  ASSERT_EQ(isthmus_sampler_create(model().get(), &params, &sampler, nullptr), ISTHMUS_OK);
  std::vector<float> logits(300, 0.0F);
  logits[7] = 3.0F;
  logits[9] = 2.0F;
  const isthmus_sampled* sampled = nullptr;
  ASSERT_EQ(isthmus_sampler_sample(sampler, logits.data(), 300, nullptr, 0, &sampled, nullptr), ISTHMUS_OK);
  EXPECT_EQ(sampled->token, 7);
  ASSERT_EQ(sampled->top_count, 2U);
  EXPECT_EQ(sampled->top[1].token, 9);
  EXPECT_NEAR(sampled->top[0].logprob - sampled->top[1].logprob, 1.0F, 1e-5F);
  const isthmus_token outside = 300;
  EXPECT_EQ(isthmus_sampler_sample(sampler, logits.data(), 299, nullptr, 0, &sampled, nullptr),
            ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(isthmus_sampler_sample(sampler, logits.data(), 300, &outside, 1, &sampled, nullptr),
            ISTHMUS_INVALID_ARGUMENT);
  logits[3] = std::nanf("");
  EXPECT_EQ(isthmus_sampler_sample(sampler, logits.data(), 300, nullptr, 0, &sampled, nullptr),
            ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(sampled, nullptr);
  isthmus_sampler_free(sampler);
}

TEST(CapiGenerate, CallbacksFiguresAndLogprobs) {
  isthmus::Session session(model());
  auto options = greedy(10);
  options.sampler.logprobs = 3;
  std::string streamed;
  isthmus::Tokens seen;
  options.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  options.on_token = [&](const isthmus_sampled& sampled) { seen.push_back(sampled.token); };
  const auto prompt = model().tokenize("figures");
  const auto run = session.generate(prompt, options);
  EXPECT_EQ(run.text(), streamed);
  EXPECT_EQ(run.tokens(), seen);
  EXPECT_EQ(run.reason(), ISTHMUS_FINISH_LENGTH);
  for (size_t i = 0; i < 10; ++i) {
    ASSERT_NE(run.logprobs(i), nullptr);
    EXPECT_EQ(run.logprobs(i)->token, seen[i]);
    ASSERT_EQ(run.logprobs(i)->top_count, 3U);
    EXPECT_EQ(run.logprobs(i)->top[0].token, seen[i]);
    EXPECT_LE(run.logprobs(i)->logprob, 0.0F);
  }
  EXPECT_EQ(run.logprobs(10), nullptr);
  const isthmus_figures figures = run.figures();
  EXPECT_EQ(figures.prompt_tokens, prompt.size());
  EXPECT_EQ(figures.generated_tokens, 10U);
  EXPECT_EQ(figures.gap_count, 9U);
  EXPECT_GT(figures.ttft_seconds, 0.0);
  EXPECT_GE(figures.ttft_seconds, figures.prefill_seconds);
  EXPECT_GT(figures.tbt_p50_seconds, 0.0);
  EXPECT_GE(figures.tbt_p99_seconds, figures.tbt_p50_seconds);
  EXPECT_GT(figures.peak_memory_bytes, 1U << 20);

  auto longer = prompt;
  longer.insert(longer.end(), seen.begin(), seen.end());
  EXPECT_EQ(session.generate(longer, greedy(1)).figures().reused_tokens, longer.size() - 1);
}

TEST(CapiGenerate, StopStringsAndFullContext) {
  isthmus::Session session(model());
  const auto prompt = model().tokenize("stop");
  const auto free_run = session.generate(prompt, greedy(40));
  const std::string text(free_run.text());
  ASSERT_GT(text.size(), 8U);
  auto options = greedy(40);
  options.stops = {text.substr(4, 3)};
  const auto stopped = session.generate(prompt, options);
  EXPECT_EQ(stopped.reason(), ISTHMUS_FINISH_STOP_STRING);
  EXPECT_EQ(stopped.stop_string(), options.stops[0]);
  EXPECT_EQ(stopped.text(), text.substr(0, text.find(options.stops[0])));
  options.stops = {""};
  EXPECT_THAT(message_of([&] { session.generate(prompt, options); }), HasSubstr("options.stops[0]"));

  const auto full = session.generate(prompt, greedy(0));
  EXPECT_EQ(full.reason(), ISTHMUS_FINISH_CONTEXT);
  EXPECT_EQ(code_of([&] { session.generate({}, greedy(1)); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { session.generate(isthmus::Tokens(513, 65), greedy(1)); }),
            ISTHMUS_RESOURCE_EXHAUSTED);
}

TEST(CapiGenerate, SpeculationGivesTheSameResult) {
  auto model_options = small_options();
  model_options.draft_tokens = 7;
  const isthmus::Model drafting(tiny("llama"), model_options);
  isthmus::Tokens prompt = drafting.tokenize("one two one two one two");
  auto options = greedy(200);
  const isthmus_logit_bias only[] = {{65, 100.0F}, {66, 100.0F}};
  options.sampler.logit_bias = only;
  options.sampler.logit_bias_count = 2;
  options.ignore_stop_tokens = true;
  isthmus::Session plain(drafting);
  isthmus::Session fast(drafting);
  const auto expected = plain.generate(prompt, options);
  options.max_draft = 7;
  const auto run = fast.generate(prompt, options);
  EXPECT_EQ(run.tokens(), expected.tokens());
  EXPECT_EQ(run.text(), expected.text());
  EXPECT_EQ(fast.logits(), plain.logits());
  EXPECT_EQ(expected.figures().verify_steps, 0U);
  const isthmus_figures figures = run.figures();
  EXPECT_GE(figures.drafted_tokens, figures.accepted_tokens);
  EXPECT_GE(figures.drafted_tokens, figures.verify_steps);
  options.max_draft = 8;
  EXPECT_THAT(message_of([&] { fast.generate(prompt, options); }), HasSubstr("options.max_draft"));
  isthmus::Session without(model());
  options.max_draft = 1;
  EXPECT_EQ(code_of([&] { without.generate(prompt, options); }), ISTHMUS_INVALID_ARGUMENT);
}

TEST(CapiGenerate, CallbacksEndRuns) {
  isthmus::Session session(model());
  auto options = greedy(100);
  options.on_text = [](std::string_view) { return false; };
  EXPECT_EQ(session.generate({65}, options).reason(), ISTHMUS_FINISH_CANCELLED);
  options.on_text = [](std::string_view) -> bool { throw std::runtime_error("from a callback"); };
  EXPECT_THROW(session.generate({65}, options), std::runtime_error);
  // A call on the session from its own callback is refused, and the run goes on.
  isthmus_code inside = ISTHMUS_OK;
  options = greedy(3);
  options.on_token = [&](const isthmus_sampled&) { inside = code_of([&] { session.truncate(0); }); };
  EXPECT_EQ(session.generate({65}, options).reason(), ISTHMUS_FINISH_LENGTH);
  EXPECT_EQ(inside, ISTHMUS_FAILED_PRECONDITION);
}

/// Generates without an end (the context shifts) until `limits` stop it.
isthmus::Generation endless(isthmus::Session& session, const isthmus::Limits& limits,
                            std::function<void(const isthmus_sampled&)> on_token = {}) {
  auto options = greedy(0);
  options.on_full = ISTHMUS_SHIFT_WHEN_FULL;
  options.limits = limits;
  options.on_token = std::move(on_token);
  return session.generate({65, 66, 67}, options);
}

TEST(CapiLimits, CancelFromAnotherThread) {
  isthmus::Session session(model());
  isthmus::Cancel cancel;
  isthmus::Limits limits;
  limits.cancel = &cancel;
  std::thread other;
  const auto run = endless(session, limits, [&](const isthmus_sampled&) {
    if (!other.joinable()) other = std::thread([&] { cancel.set(); });
  });
  other.join();
  EXPECT_EQ(run.reason(), ISTHMUS_FINISH_CANCELLED);
  EXPECT_THAT(run.tokens(), ::testing::Not(::testing::IsEmpty()));
  // Set before the first token it is an error, and the session can be used after a reset.
  EXPECT_EQ(code_of([&] { endless(session, limits); }), ISTHMUS_CANCELLED);
  EXPECT_EQ(code_of([&] { session.append({65}, ISTHMUS_PROMPT, limits); }), ISTHMUS_CANCELLED);
  cancel.reset();
  EXPECT_EQ(session.generate({65}, greedy(1)).reason(), ISTHMUS_FINISH_LENGTH);
}

isthmus_cancel* signalled = nullptr;

TEST(CapiLimits, CancelFromASignalHandler) {
  isthmus::Session session(model());
  isthmus::Cancel cancel;
  isthmus::Limits limits;
  limits.cancel = &cancel;
  signalled = cancel.get();
  const auto before = std::signal(SIGUSR1, [](int) { isthmus_cancel_set(signalled); });
  const auto run = endless(session, limits, [](const isthmus_sampled&) { std::raise(SIGUSR1); });
  std::signal(SIGUSR1, before);
  EXPECT_EQ(run.reason(), ISTHMUS_FINISH_CANCELLED);
  EXPECT_THAT(run.tokens(), SizeIs(1));
}

TEST(CapiLimits, Deadline) {
  isthmus::Session session(model());
  isthmus::Limits limits;
  limits.deadline = std::chrono::milliseconds(300);
  const auto start = std::chrono::steady_clock::now();
  // The first token may wait for longer than the deadline on a busy machine; then it is an error.
  const isthmus_code code =
      code_of([&] { EXPECT_EQ(endless(session, limits).reason(), ISTHMUS_FINISH_DEADLINE); });
  EXPECT_TRUE(code == ISTHMUS_OK || code == ISTHMUS_DEADLINE_EXCEEDED);
  EXPECT_GE(std::chrono::steady_clock::now() - start, limits.deadline);
  limits.deadline = std::chrono::milliseconds(-1);
  EXPECT_EQ(code_of([&] { endless(session, limits); }), ISTHMUS_INVALID_ARGUMENT);
}

TEST(CapiThreads, TwoSessionsOnTwoThreadsEqualOneAlone) {
  const auto first = model().tokenize("one text");
  const auto second = model().tokenize("quite another text");
  isthmus::Session alone(model());
  const auto expected_first = alone.generate(first, greedy(40)).tokens();
  const auto expected_second = alone.generate(second, greedy(40)).tokens();
  isthmus::Tokens got_first, got_second;
  std::thread a([&] { got_first = isthmus::Session(model()).generate(first, greedy(40)).tokens(); });
  std::thread b([&] { got_second = isthmus::Session(model()).generate(second, greedy(40)).tokens(); });
  a.join();
  b.join();
  EXPECT_EQ(got_first, expected_first);
  EXPECT_EQ(got_second, expected_second);
}

TEST(CapiGenerate, SameSeedSameTextAtAnyThreadCount) {
  auto options = greedy(30);
  options.sampler = {};
  options.sampler.temperature = 1.5F;
  options.sampler.seed = 42;
  isthmus::Session two(model());
  auto one_thread = small_options();
  one_thread.threads = 1;
  const isthmus::Model other(tiny("llama"), one_thread);
  isthmus::Session one(other);
  const auto expected = two.generate({65, 66}, options).tokens();
  EXPECT_EQ(one.generate({65, 66}, options).tokens(), expected);
  options.sampler.seed = 43;
  EXPECT_NE(two.generate({65, 66}, options).tokens(), expected);
}

}  // namespace
}  // namespace isthmus_capi_test
