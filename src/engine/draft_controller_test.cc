#include "engine/draft_controller.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/rng.h"

namespace isthmus {
namespace {

constexpr size_t kMaxDraft = 15;

/// A run on a machine whose steps take what `cost` says, over a text of which `right(i)` says whether token i
/// would be drafted rightly: the loop of SpeculativeReader with the time of day made up.
struct Simulation {
  std::function<double(size_t rows)> cost = [](size_t rows) {
    return 1 + 0.1 * static_cast<double>(rows - 1);
  };
  std::function<bool(size_t i)> right = [](size_t) { return true; };
  size_t first_match = 2;  // length of match behind a wrong token
  DraftController controller{kMaxDraft};
  size_t token = 0;
  size_t match = 2;
  double time = 0;
  size_t drafted = 0;
  size_t verify_steps = 0;

  void token_done(size_t place) {
    const bool was_right = right(token);
    controller.note_token(match, was_right);
    match = was_right ? match + 1 : first_match;
    ++token;
    (void)place;
  }

  void step() {
    const size_t k = controller.choose(match, kMaxDraft);
    const double seconds = cost(k + 1);
    time += seconds;
    if (k == 0) {
      controller.note_plain(seconds);
      token_done(0);
      return;
    }
    drafted += k;
    ++verify_steps;
    size_t gained = 0;
    for (bool good = true; good && gained <= k; ++gained) {
      if (gained < k) {
        good = right(token);
        token_done(gained);
      } else {
        token_done(gained);  // drawn from the last row
      }
    }
    controller.note_verified(k + 1, gained, seconds);
  }

  /// Runs until `n` more tokens are there; time per token, relative to plain steps.
  double run(size_t n) {
    const double before = time;
    const size_t from = token;
    while (token < from + n) step();
    return (time - before) / static_cast<double>(token - from) / cost(1);
  }
};

TEST(DraftController, TextThatRepeatsItselfIsReadSeveralTokensAtATime) {
  Simulation s;
  EXPECT_LT(s.run(200), 0.3);
  EXPECT_GT(s.controller.acceptance(100), 0.9);
  EXPECT_NEAR(s.controller.relative_cost(16), 2.5, 1e-9);
}

TEST(DraftController, WrongDraftsCostLessThanThreePercent) {
  for (const size_t match : {2, 3, 8, 40}) {
    for (const double row : {0.02, 0.1, 0.3, 1.0}) {
      Simulation s;
      s.first_match = match;
      s.right = [](size_t) { return false; };
      s.cost = [row](size_t rows) { return 1 + row * static_cast<double>(rows - 1); };
      EXPECT_LT(s.run(200), 1.03) << "matches of " << match << ", row cost " << row;
      EXPECT_LT(s.run(1000), 1.016) << "matches of " << match << ", row cost " << row;
    }
  }
}

TEST(DraftController, NoShareOfRightTokensCostsMoreThanThreePercent) {
  for (int percent = 0; percent <= 100; percent += 5) {
    for (const double row : {0.05, 0.15, 0.5, 1.0}) {
      Rng rng(static_cast<uint64_t>(percent) + 1);
      std::vector<bool> truth(2000);
      for (size_t i = 0; i < truth.size(); ++i) truth[i] = rng.below(100) < static_cast<uint64_t>(percent);
      Simulation s;
      s.right = [&](size_t i) { return truth[i % truth.size()]; };
      s.cost = [row](size_t rows) { return 1 + row * static_cast<double>(rows - 1); };
      EXPECT_LT(s.run(300), 1.03) << percent << " % right, row cost " << row;
    }
  }
}

TEST(DraftController, ExpensiveStepsAreNotRepeated) {
  Simulation s;
  s.cost = [](size_t rows) { return static_cast<double>(rows) * 1.2 - 0.2; };
  EXPECT_LT(s.run(400), 1.03);
  EXPECT_LT(s.verify_steps, 20U);
}

TEST(DraftController, TheBestLengthIsFoundWhereLongStepsAreDear) {
  // Up to four rows are free, then each costs a step: drafts of three.
  Simulation s;
  s.cost = [](size_t rows) { return rows <= 4 ? 1.0 : static_cast<double>(rows) - 3; };
  s.run(400);
  EXPECT_LT(s.run(400), 0.45);
}

TEST(DraftController, ItComesBackWhenTheTextRepeatsItselfAgain) {
  Simulation s;
  s.right = [](size_t i) { return (i / 300) % 2 == 0; };
  EXPECT_LT(s.run(300), 0.4);
  EXPECT_LT(s.run(300), 1.06);  // with what was saved before, some more is dared
  EXPECT_LT(s.run(300), 0.5);
  EXPECT_LT(s.run(300), 1.06);
}

TEST(DraftController, OneInterruptedStepDoesNotDecide) {
  Simulation s;
  bool interrupted = false;
  s.cost = [&](size_t rows) {
    const bool now = rows > 1 && !interrupted;
    if (now) interrupted = true;
    return now ? 30.0 : 1 + 0.1 * static_cast<double>(rows - 1);
  };
  s.run(1500);
  EXPECT_LT(s.run(500), 0.6);
}

TEST(DraftController, NothingIsDraftedBeforeAPlainStepWasTimed) {
  DraftController controller(kMaxDraft);
  EXPECT_EQ(controller.choose(50, kMaxDraft), 0U);
  controller.note_plain(0.01);
  EXPECT_EQ(controller.choose(50, kMaxDraft), 3U);  // longer ones when this one was timed
  controller.note_verified(4, 4, 0.011);
  EXPECT_EQ(controller.choose(50, kMaxDraft), 7U);
  EXPECT_EQ(controller.choose(50, 2), 2U);
  EXPECT_EQ(controller.choose(50, 0), 0U);
  EXPECT_LE(controller.choose(50, 1000), kMaxDraft);
}

TEST(DraftController, CostsBetweenMeasuredRowsAreOnTheLine) {
  DraftController controller(kMaxDraft);
  controller.note_plain(1);
  EXPECT_DOUBLE_EQ(controller.relative_cost(1), 1);
  controller.note_verified(5, 5, 2);
  EXPECT_DOUBLE_EQ(controller.relative_cost(3), 1.5);
  EXPECT_DOUBLE_EQ(controller.relative_cost(9), 3);
  controller.note_verified(9, 9, 2.4);
  EXPECT_DOUBLE_EQ(controller.relative_cost(7), 2.2);
  // Most of the newest five samples are right.
  for (const double seconds : {2.0, 50.0, 2.0, 60.0, 2.0}) controller.note_verified(5, 5, seconds);
  EXPECT_DOUBLE_EQ(controller.relative_cost(5), 2);
}

}  // namespace
}  // namespace isthmus
