#include "calibrate/calibration.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

std::shared_ptr<LanguageModel> tuning_model() {
  ModelOptions options;
  options.context = 256;
  options.step_tokens = kScorerStep;
  options.step_outputs = kScorerStep;
  auto model = LanguageModel::load(ISTHMUS_TINY_MODELS "/llama.gguf", std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

std::vector<TokenId> tuning_text(size_t n) {
  std::vector<TokenId> out;
  uint32_t seed = 4;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525U + 1013904223U;
    out.push_back(static_cast<TokenId>(3 + seed / 65536 % 90));
  }
  return out;
}

TuneKvOptions small_tuning(double bits) {
  TuneKvOptions options;
  options.mean_bits = bits;
  options.window = 200;
  options.rows = 40;
  options.residual = 64;
  return options;
}

TEST(TuneKvBits, KeepsTheTargetAndIsNoWorseThanUniformCodes) {
  const auto model = tuning_model();
  for (const double bits : {2.5, 4.0, 5.0}) {
    size_t steps = 0;
    TuneKvOptions options = small_tuning(bits);
    options.progress = [&](size_t done, size_t all) {
      ++steps;
      EXPECT_LE(done, all);
    };
    const auto tuned = tune_kv_bits(model, tuning_text(400), options);
    ASSERT_TRUE(tuned.ok()) << tuned.status().to_string();
    EXPECT_LE(tuned->chosen.held_bits, bits + 1e-9);
    EXPECT_EQ(tuned->losses.size(), 2 * model->config().layers);
    EXPECT_GE(steps, 2 * model->config().layers * 4);
    for (const MeasuredCodec& other : tuned->others) {
      EXPECT_GE(other.distance.mean_kl, tuned->chosen.distance.mean_kl);
    }
    // Each part alone: more bits, less loss (8 against 1), and 16 bits lose nothing.
    for (const BitLosses& part : tuned->losses) {
      EXPECT_LT(part[3], part[0]);
      EXPECT_EQ(part[4], 0);
    }
  }
}

TEST(TuneKvBits, WhatCannotBeIsRefused) {
  const auto model = tuning_model();
  const auto code = [&](const TuneKvOptions& options, size_t tokens) {
    return tune_kv_bits(model, tuning_text(tokens), options).status().code();
  };
  EXPECT_EQ(code(small_tuning(1.5), 400), Code::kInvalidArgument);
  EXPECT_EQ(code(small_tuning(17), 400), Code::kInvalidArgument);
  EXPECT_EQ(code(small_tuning(4), 399), Code::kInvalidArgument);
  auto options = small_tuning(4);
  options.rows = 190;
  EXPECT_EQ(code(options, 400), Code::kInvalidArgument);
  options = small_tuning(4);
  options.window = 300;
  EXPECT_EQ(code(options, 600), Code::kInvalidArgument);
}

Calibration some_calibration() {
  Calibration out;
  out.model[0] = std::byte{7};
  out.label = "a model";
  out.kv_bits.emplace();
  out.kv_bits->codec = *parse_kv_bits("k4v2,2");
  out.kv_bits->codec.residual = 64;
  out.kv_bits->codec.keys = KeyForm::kUnrotated;
  out.kv_bits->held_bits = 3.5;
  out.kv_bits->evidence = {{"windows", 2}};
  out.others = {{"heads", {{"kinds", {1, 2}}}}};
  return out;
}

TEST(Calibration, ComesBackAsItWas) {
  const std::string text = write_calibration(some_calibration());
  const auto back = parse_calibration(text);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->model, some_calibration().model);
  EXPECT_EQ(back->label, "a model");
  ASSERT_TRUE(back->kv_bits.has_value());
  EXPECT_EQ(kv_bits_name(back->kv_bits->codec), "k4v2,2");
  EXPECT_EQ(back->kv_bits->codec.residual, 64U);
  EXPECT_EQ(back->kv_bits->codec.keys, KeyForm::kUnrotated);
  EXPECT_EQ(write_calibration(*back), text) << "sections of others stay";
}

TEST(Calibration, DamageIsNamed) {
  const std::string good = write_calibration(some_calibration());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return parse_calibration(text).status();
  };
  EXPECT_EQ(with("\"version\": 1", "\"version\": 2").code(), Code::kUnsupported);
  EXPECT_EQ(with("isthmus calibration", "something else").code(), Code::kCorrupt);
  EXPECT_EQ(with("0700", "07zz").code(), Code::kCorrupt);
  EXPECT_EQ(with("k4v2,2", "k5v2,2").code(), Code::kCorrupt);
  EXPECT_EQ(with("unrotated", "sideways").code(), Code::kCorrupt);
  EXPECT_EQ(with("\"residual\": 64", "\"residual\": -64").code(), Code::kCorrupt);
  EXPECT_EQ(with("\"held_bits\": 3.5", "\"held_bits\": \"x\"").code(), Code::kCorrupt);
  EXPECT_EQ(with("{", "[").code(), Code::kCorrupt);
  EXPECT_EQ(parse_calibration("").status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_calibration(std::string(kMaxCalibrationBytes + 1, ' ')).status().code(), Code::kCorrupt);
  std::string deep = "{\"a\":";
  for (int i = 0; i < 1000; ++i) deep += "[";
  EXPECT_EQ(parse_calibration(deep).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace isthmus
