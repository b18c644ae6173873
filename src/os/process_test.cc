#include "os/process.h"

#include <gtest/gtest.h>

#include <thread>

namespace isthmus {
namespace {

using std::chrono::milliseconds;

ProcessSpec shell(const std::string& script) {
  ProcessSpec spec;
  spec.argv = {"sh", "-c", script};
  return spec;
}

TEST(Process, KeepsOutputAndExitCode) {
  const auto result = run_process(shell("echo out; echo err >&2; exit 7"));
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->out, "out\n");
  EXPECT_EQ(result->err, "err\n");
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->signal, 0);
}

TEST(Process, ArgumentsAreNotReadByAShell) {
  ProcessSpec spec;
  spec.argv = {"printf", "%s", "$(echo no); `rm -rf x` *"};
  const auto result = run_process(spec);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out, "$(echo no); `rm -rf x` *");
}

TEST(Process, MissingProgramIsNotFound) {
  ProcessSpec spec;
  spec.argv = {"no-such-program-here"};
  EXPECT_EQ(run_process(spec).status().code(), Code::kNotFound);
}

TEST(Process, EnvironmentIsAddedAndReplaced) {
  ProcessSpec spec = shell("printf '%s' \"$PATH:$ISTHMUS_TEST_WORD\"");
  spec.argv[0] = "/bin/sh";
  spec.env = {{"PATH", "/nowhere"}, {"ISTHMUS_TEST_WORD", "word"}};
  const auto result = run_process(spec);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out, "/nowhere:word");
}

TEST(Process, LongOutputKeepsItsEnd) {
  ProcessSpec spec = shell(
      "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); "
      "done; printf end");
  spec.max_output = 1000;
  const auto result = run_process(spec);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->out.size(), 1000U);
  EXPECT_EQ(result->out.substr(997), "end");
}

TEST(Process, DeadlineStopsTheWholeGroup) {
  ProcessSpec spec = shell("sleep 30 & sleep 30");
  spec.poll = milliseconds(20);
  spec.stop.deadline = std::chrono::steady_clock::now() + milliseconds(150);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run_process(spec).status().code(), Code::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Process, CancelKillsAChildThatIgnoresSigterm) {
  CancelSource source;
  ProcessSpec spec = shell("trap '' TERM; while :; do sleep 0.05; done");
  spec.poll = milliseconds(20);
  spec.grace = milliseconds(100);
  spec.stop.token = source.token();
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(100));
    source.cancel();
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run_process(spec).status().code(), Code::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  canceller.join();
}

TEST(Process, SignalsAreReportedAndPollRuns) {
  ProcessSpec spec = shell("sleep 0.2; kill -9 $$");
  spec.poll = milliseconds(10);
  int polls = 0;
  spec.on_poll = [&] { ++polls; };
  const auto result = run_process(spec);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->signal, 9);
  EXPECT_EQ(result->exit_code, 137);
  EXPECT_GE(polls, 3);
}

TEST(Process, StandardInputIsEmpty) {
  const auto result = run_process(shell("cat; echo done"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out, "done\n");
}

}  // namespace
}  // namespace isthmus
