// Who waits for whom in a Batcher: arrivals on a clock of the test, and threads.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/batcher_test_util.h"

namespace isthmus {
namespace {

using batch_testing::batch_options;
using batch_testing::BatchDriver;
using batch_testing::load_for_batch;
using batch_testing::random_prompt;
using batch_testing::sampled_request;
using std::chrono::seconds;

/// A batcher whose clock moves one second a step.
struct BatchTrace {
  Answer::Time time{seconds(1000)};
  Rng rng{9};
  BatchDriver driver;

  explicit BatchTrace(BatcherOptions options = {}, ModelOptions model = batch_options())
      : driver(load_for_batch(std::move(model)), with_clock(std::move(options))) {}

  BatcherOptions with_clock(BatcherOptions options) {
    options.clock = [this] { return time; };
    return options;
  }
  BatchStep step() {
    const BatchStep report = driver.step();
    time += seconds(1);
    return report;
  }
  /// Steps until `id` is done; the seconds that took.
  size_t seconds_to_end(RequestId id) {
    size_t n = 0;
    for (; driver.results.count(id) == 0 && n < 5000; ++n) step();
    return n;
  }
  RequestId submit(size_t prompt, size_t max_tokens, Priority priority = Priority::kInteractive) {
    return driver.submit(sampled_request(random_prompt(rng, prompt), max_tokens), priority);
  }
};

TEST(BatcherTrace, EachStepHasATokenOfEverySequenceAndAChunkOfAPrompt) {
  BatchTrace trace({.chunk_tokens = 16});
  for (int i = 0; i < 7; ++i) trace.submit(4, 100);
  EXPECT_EQ(trace.step().generated_tokens, 7U);
  const auto late = trace.submit(80, 1);
  for (int i = 0; i < 5; ++i) {
    const BatchStep report = trace.step();
    EXPECT_EQ(report.prompt_tokens, 16U);
    EXPECT_EQ(report.generated_tokens, i < 4 ? 7U : 8U);
    EXPECT_EQ(report.finished, i < 4 ? 0U : 1U);
  }
  EXPECT_EQ(trace.driver.result(late).figures.ttft_seconds, 4);
}

TEST(BatcherTrace, GapsAreThoseOfTheClock) {
  BatchTrace trace;
  const auto id = trace.submit(10, 5);
  trace.driver.run();
  EXPECT_EQ(trace.driver.result(id).figures.gap_seconds, std::vector<double>(4, 0.0));
  const auto other = trace.submit(10, 5);
  trace.seconds_to_end(other);
  EXPECT_EQ(trace.driver.result(other).figures.gap_seconds, std::vector<double>(4, 1.0));
  EXPECT_EQ(trace.driver.result(other).figures.decode_seconds, 4);
}

TEST(BatcherTrace, AShortPromptDoesNotWaitForTheEndOfALongOne) {
  BatchTrace trace({.step_tokens = 16});
  const auto long_one = trace.submit(120, 1);
  const auto short_one = trace.submit(6, 1);
  EXPECT_LE(trace.seconds_to_end(short_one), 3U);
  EXPECT_EQ(trace.driver.results.count(long_one), 0U);
  EXPECT_LE(trace.seconds_to_end(long_one), 8U);
}

TEST(BatcherTrace, ABetterLevelTakesThePlaceOfAWorseOne) {
  BatchTrace trace({.max_running = 2});
  const auto first = trace.submit(10, 60, Priority::kBatch);
  const auto second = trace.submit(10, 60, Priority::kBackground);
  trace.step();
  const auto urgent = trace.submit(10, 5);
  EXPECT_EQ(trace.seconds_to_end(urgent), 5U);
  EXPECT_EQ(trace.driver.results.size(), 1U);
  trace.driver.run();
  EXPECT_EQ(trace.driver.sum.recomputed_tokens, 0U);  // there was room for its KV meanwhile
  EXPECT_EQ(trace.driver.result(first).tokens.size(), 60U);
  EXPECT_EQ(trace.driver.result(second).tokens.size(), 60U);
}

TEST(BatcherTrace, ABetterLevelTakesTheBlocksOfAWorseOne) {
  ModelOptions options = batch_options(1);
  BatchTrace trace({}, options);
  const auto background = trace.submit(80, 30, Priority::kBackground);
  trace.step();
  trace.step();
  const auto urgent = trace.submit(60, 10);
  EXPECT_EQ(trace.seconds_to_end(urgent), 10U);
  EXPECT_GE(trace.driver.sum.preempted, 1U);
  trace.driver.run();
  EXPECT_GT(trace.driver.sum.recomputed_tokens, 0U);
  EXPECT_EQ(trace.driver.result(background).tokens.size(), 30U);
}

TEST(BatcherTrace, NoStreamOfBetterOnesStarvesARequest) {
  for (const auto patience : {seconds(10), seconds(0)}) {
    BatchTrace trace({.max_running = 2, .patience = patience});
    for (int i = 0; i < 2; ++i) trace.submit(8, 6);
    const auto batch = trace.submit(8, 3, Priority::kBatch);
    size_t waited = 0;
    for (; trace.driver.results.count(batch) == 0 && waited < 100; ++waited) {
      trace.step();
      for (int i = 0; i < 2; ++i) trace.submit(8, 6);  // more than there is room for
    }
    if (patience.count() > 0) {
      EXPECT_GT(waited, 20U);
      EXPECT_LT(waited, 40U);
    } else {
      EXPECT_EQ(waited, 100U);  // what patience is there for
    }
  }
}

TEST(BatcherTrace, ALargePromptIsNotOvertakenForEver) {
  BatchTrace trace({.patience = seconds(0)}, batch_options(1));
  trace.submit(30, 30);
  trace.step();
  const auto large = trace.submit(100, 2);  // does not fit beside the first
  size_t waited = 0;
  for (; trace.driver.results.count(large) == 0 && waited < 200; ++waited) {
    trace.step();
    trace.submit(10, 3);
  }
  EXPECT_LT(waited, 40U);
}

TEST(BatcherTrace, DeadlinesAndCancelsAreHeededWaitingReadingAndGenerating) {
  BatchTrace trace({.max_running = 2, .step_tokens = 8, .chunk_tokens = 4});
  const auto timed = [&](size_t prompt, long after) {
    GenerateRequest r = sampled_request(random_prompt(trace.rng, prompt), 100);
    r.stop.deadline = trace.time + seconds(after);
    return trace.driver.submit(std::move(r));
  };
  const auto generating = timed(4, 10);
  const auto reading = timed(100, 3);
  const auto waiting = timed(10, 2);
  const auto gone = trace.submit(10, 10);
  trace.driver.batcher->cancel(gone);
  trace.driver.batcher->cancel(12345);  // unknown: nothing happens
  for (int i = 0; i < 12; ++i) trace.step();
  EXPECT_EQ(trace.driver.result(generating).reason, FinishReason::kDeadline);
  EXPECT_EQ(trace.driver.result(generating).tokens.size(), 10U);
  EXPECT_EQ(trace.driver.results.at(reading).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(trace.driver.results.at(waiting).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(trace.driver.results.at(gone).status().code(), Code::kCancelled);
  EXPECT_TRUE(trace.driver.batcher->idle());
  trace.driver.batcher->forget_prefixes();
  EXPECT_EQ(trace.driver.batcher->model().make_sequence().pool()->used_blocks(), 0U);
}

TEST(Batcher, ACallbackMayEndItsOwnRequestAndStartAnother) {
  BatchDriver driver(load_for_batch(batch_options()));
  CancelSource source;
  GenerateRequest request = sampled_request({40, 41, 42}, 100);
  request.stop.token = source.token();
  size_t seen = 0;
  request.on_token = [&](const Sampled&) {
    if (++seen == 5) source.cancel();
  };
  std::optional<Result<GenerateResult>> first, second;
  const auto id = driver.batcher->submit(
      {request, Priority::kInteractive, [&](RequestId, Result<GenerateResult> result) {
         first.emplace(std::move(result));
         const auto next = driver.batcher->submit({sampled_request({50, 51}, 3), Priority::kInteractive,
                                                   [&](RequestId, auto r) { second.emplace(std::move(r)); }});
         EXPECT_TRUE(next.ok());
       }});
  ASSERT_TRUE(id.ok());
  driver.run();
  ASSERT_TRUE(first && first->ok() && second && second->ok());
  EXPECT_EQ((*first)->reason, FinishReason::kCancelled);
  EXPECT_EQ((*first)->tokens.size(), 5U);
  EXPECT_EQ((*second)->tokens.size(), 3U);
}

TEST(Batcher, TooManyRequestsAreRefusedAndTheEndCancelsTheRest) {
  std::vector<Code> ends;
  const auto note = [&](RequestId, const Result<GenerateResult>& result) {
    ends.push_back(result.status().code());
  };
  {
    BatcherOptions options;
    options.max_requests = 3;
    auto batcher = Batcher::create(load_for_batch(batch_options()), options);
    ASSERT_TRUE(batcher.ok());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE((*batcher)->submit({sampled_request({40, 41}, 10), Priority::kInteractive, note}).ok());
    }
    EXPECT_EQ((*batcher)->submit({sampled_request({40}, 1), Priority::kInteractive, note}).status().code(),
              Code::kResourceExhausted);
    EXPECT_TRUE(ends.empty());
  }
  EXPECT_EQ(ends, std::vector<Code>(3, Code::kCancelled));
}

TEST(Batcher, AnyThreadMaySubmitAndCancelWhileOneDrives) {
  constexpr size_t kThreads = 4;
  constexpr size_t kEach = 12;
  ModelOptions options = batch_options(2);
  auto made = Batcher::create(load_for_batch(options), {});
  ASSERT_TRUE(made.ok());
  Batcher& batcher = **made;
  std::atomic<size_t> done{0}, tokens{0};
  std::atomic<bool> over{false};
  std::thread driver([&] {
    while (!over.load()) {
      if (batcher.idle()) batcher.wait();
      batcher.step();
    }
  });
  std::vector<std::thread> clients;
  for (size_t t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      Rng rng(t);
      for (size_t i = 0; i < kEach; ++i) {
        const auto id = batcher.submit(
            {sampled_request(random_prompt(rng, 1 + rng.below(40)), 1 + rng.below(20)),
             static_cast<Priority>(rng.below(3)), [&](RequestId, const Result<GenerateResult>& result) {
               if (result.ok()) tokens += result.value().tokens.size();
               ++done;
             }});
        EXPECT_TRUE(id.ok());
        if (id.ok() && rng.below(4) == 0) batcher.cancel(*id);
        if (rng.below(3) == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& client : clients) client.join();
  while (done.load() < kThreads * kEach) std::this_thread::yield();
  over = true;
  batcher.wake();
  driver.join();
  EXPECT_TRUE(batcher.idle());
  EXPECT_GT(tokens.load(), 0U);
}

}  // namespace
}  // namespace isthmus
