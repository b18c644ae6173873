#include "format/logits_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/crc32.h"
#include "base/rng.h"
#include "format/logits_distance.h"

namespace isthmus {
namespace {

using ::testing::HasSubstr;

class LogitsFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "logits_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    path_ = pattern + "/x.isthlog";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static LogitsLayout layout(LogitsRowType type = LogitsRowType::kF32) {
    LogitsLayout out;
    out.vocab = 7;
    out.windows = 2;
    out.window_tokens = 5;
    out.first_row = 2;
    out.rows_per_window = 3;
    out.type = type;
    out.by_token = true;
    out.model_sha256[3] = std::byte{9};
    out.producer = "a test";
    out.tokens = {0, 1, 2, 3, 4, 5, 6, 0, 1, 2};
    return out;
  }

  static std::vector<float> row(size_t index) {
    Rng rng(index);
    std::vector<float> out(7);
    for (float& value : out) value = static_cast<float>(rng.uniform() * 6);
    log_softmax(out, out);
    return out;
  }

  void write(LogitsRowType type = LogitsRowType::kF32) {
    auto writer = LogitsWriter::create(real_file_system(), path_, layout(type));
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (size_t i = 0; i < 6; ++i) ASSERT_TRUE(writer->append_row(row(i)).ok());
    const Status status = writer->publish();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static Status parse(const std::string& bytes) {
    return LogitsFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "bytes").status();
  }

  static std::string with_word(std::string bytes, size_t offset, uint32_t value, bool fix_header = true) {
    std::memcpy(bytes.data() + offset, &value, 4);
    if (fix_header) {
      const uint32_t crc = crc32(std::as_bytes(std::span(bytes.data(), 124)));
      std::memcpy(bytes.data() + 124, &crc, 4);
    }
    return bytes;
  }

  std::string dir_, path_;
};

TEST_F(LogitsFileTest, RoundTrip) {
  for (const auto type : {LogitsRowType::kF32, LogitsRowType::kF16}) {
    write(type);
    auto file = LogitsFile::open(path_);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    const LogitsLayout& got = file->layout();
    const LogitsLayout expected = layout(type);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.model_sha256, expected.model_sha256);
    EXPECT_EQ(got.producer, "a test");
    EXPECT_TRUE(got.by_token);
    EXPECT_EQ(got.rows(), 6u);
    EXPECT_EQ(got.target(0), 3);
    EXPECT_EQ(got.target(1), 4);
    EXPECT_EQ(got.target(2), std::nullopt);
    EXPECT_EQ(got.target(3), 1);
    std::vector<float> out(7);
    for (size_t i = 0; i < 6; ++i) {
      ASSERT_TRUE(file->read_row(i, out).ok());
      for (size_t t = 0; t < 7; ++t) {
        EXPECT_NEAR(out[t], row(i)[t], type == LogitsRowType::kF32 ? 0 : 4e-3);
      }
    }
    EXPECT_EQ(file->read_row(6, out).code(), Code::kInvalidArgument);
    EXPECT_EQ(file->read_row(0, std::span(out).first(6)).code(), Code::kInvalidArgument);
  }
}

TEST_F(LogitsFileTest, LayoutInBytesIsAsDocumented) {
  write();
  const std::string bytes = content();
  const auto word = [&](size_t offset) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + offset, 4);
    return value;
  };
  EXPECT_EQ(bytes.substr(0, 8), "ISTHLOG1");
  const std::vector<uint32_t> expected = {1, 128, 0, 7, 2, 5, 2, 3, 1, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(word(8 + 4 * i), expected[i]) << i;
  EXPECT_EQ(word(128 + 4 * 6), 6u);                   // the seventh token
  EXPECT_EQ(bytes.size(), 192 + 6 * 7 * 4 + 6 * 4u);  // 128 + 40 rounds up to 192
  float first = 0;
  std::memcpy(&first, bytes.data() + 192, 4);
  EXPECT_EQ(first, row(0)[0]);
}

// The seeds were written by tests/oracle/logits_file.py, the other implementation of the format.
TEST_F(LogitsFileTest, ReadsWhatTheScriptsWrite) {
  for (const std::string name : {"f32", "f16"}) {
    auto file = LogitsFile::open(ISTHMUS_SOURCE_DIR "/tests/fuzz/corpus/logits_file/" + name);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(file->layout().producer, "seed");
    EXPECT_EQ(file->layout().tokens, (std::vector<int32_t>{0, 1, 2, 3, 4, 0}));
    std::vector<float> out(5);
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(file->read_row(i, out).ok());
      EXPECT_NEAR(out[i], std::log(0.2F), name == "f32" ? 1e-6 : 1e-3);
    }
  }
}

TEST_F(LogitsFileTest, EveryTruncationAndEveryFlippedByteIsNoticed) {
  write();
  const std::string bytes = content();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(parse(bytes.substr(0, size)).code(), Code::kCorrupt) << size;
  }
  EXPECT_EQ(parse(bytes + "x").code(), Code::kCorrupt);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    auto file = LogitsFile::parse(std::as_bytes(std::span(bad.data(), bad.size())), "bytes");
    bool noticed = !file.ok();
    std::vector<float> out(7);
    for (size_t i = 0; i < 6 && !noticed; ++i) noticed = file->read_row(i, out).code() == Code::kCorrupt;
    const bool padding = at >= 168 && at < 192;
    EXPECT_EQ(noticed, !padding) << at;
  }
}

TEST_F(LogitsFileTest, HeadersThatLie) {
  write();
  const std::string bytes = content();
  EXPECT_EQ(parse(with_word(bytes, 8, 2)).code(), Code::kUnsupported);
  EXPECT_EQ(parse(with_word(bytes, 16, 2)).code(), Code::kUnsupported);
  EXPECT_THAT(parse(with_word(bytes, 20, 5)).message(), HasSubstr("not what its header says"));
  // Sizes whose products overflow or that no memory holds.
  for (const size_t offset : {size_t{20}, size_t{24}, size_t{28}, size_t{36}}) {
    EXPECT_EQ(parse(with_word(bytes, offset, 0xFFFFFFFF)).code(), Code::kCorrupt) << offset;
    EXPECT_EQ(parse(with_word(bytes, offset, 0)).code(), Code::kCorrupt) << offset;
  }
  EXPECT_THAT(parse(with_word(bytes, 32, 3)).message(), HasSubstr("beyond the window"));
  EXPECT_EQ(parse(with_word(bytes, 40, 2)).code(), Code::kCorrupt);
  EXPECT_EQ(parse(with_word(bytes, 44, 1)).code(), Code::kCorrupt);
  EXPECT_THAT(parse(with_word(bytes, 20, 5, false)).message(), HasSubstr("header checksum"));
  EXPECT_THAT(parse("GGUF").message(), HasSubstr("bytes: not an ISTHLOG1 file"));
}

TEST_F(LogitsFileTest, WriterRefusesWhatCannotBeRead) {
  const auto refuse = [&](auto change) {
    LogitsLayout bad = layout();
    change(bad);
    return LogitsWriter::create(real_file_system(), path_, bad).status().code();
  };
  EXPECT_EQ(refuse([](auto& l) { l.tokens.pop_back(); }), Code::kInvalidArgument);
  EXPECT_EQ(refuse([](auto& l) { l.tokens[0] = 7; }), Code::kInvalidArgument);
  EXPECT_EQ(refuse([](auto& l) { l.tokens[0] = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(refuse([](auto& l) { l.first_row = 3; }), Code::kInvalidArgument);
  EXPECT_EQ(refuse([](auto& l) { l.rows_per_window = 0; }), Code::kInvalidArgument);
  auto writer = LogitsWriter::create(real_file_system(), path_, layout());
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->append_row(std::vector<float>(6)).code(), Code::kInvalidArgument);
  EXPECT_EQ(writer->publish().code(), Code::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST(LogSoftmax, SumsToOneAndKeepsDifferences) {
  const std::vector<float> logits = {1000, 999, 998};
  std::vector<float> out(3);
  log_softmax(logits, out);
  EXPECT_NEAR(std::exp(out[0]) + std::exp(out[1]) + std::exp(out[2]), 1, 1e-6);
  EXPECT_NEAR(out[0] - out[2], 2, 1e-6);
}

TEST(DistanceTally, KnownFigures) {
  const auto logs = [](std::vector<float> p) {
    for (float& value : p) value = std::log(value);
    return p;
  };
  DistanceTally first, second;
  first.add(logs({0.5F, 0.5F}), logs({0.25F, 0.75F}), 0);
  second.add(logs({0.75F, 0.25F}), logs({0.75F, 0.25F}), 1);
  second.add(logs({0.75F, 0.25F}), logs({0.25F, 0.75F}), std::nullopt);
  first.merge(second);
  const DistanceSummary summary = first.summary();
  const double a = 0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75);
  const double c = 0.75 * std::log(3.0) + 0.25 * std::log(1 / 3.0);
  EXPECT_EQ(summary.rows, 3u);
  EXPECT_NEAR(summary.mean_kl, (a + c) / 3, 1e-7);
  EXPECT_NEAR(summary.median_kl, a, 1e-7);
  EXPECT_NEAR(summary.max_kl, c, 1e-7);
  EXPECT_NEAR(summary.p99_kl, a + 0.98 * (c - a), 1e-7);
  const double m = (a + c) / 3;
  EXPECT_NEAR(summary.mean_kl_se, std::sqrt((m * m + (a - m) * (a - m) + (c - m) * (c - m)) / 2 / 3), 1e-7);
  EXPECT_NEAR(summary.same_top1, 1.0 / 3, 1e-12);
  EXPECT_EQ(summary.scored, 2u);
  EXPECT_NEAR(summary.truth_perplexity, std::sqrt(1 / (0.5 * 0.25)), 1e-6);
  EXPECT_NEAR(summary.perplexity, std::sqrt(1 / (0.25 * 0.25)), 1e-6);
  EXPECT_NEAR(summary.perplexity_ratio, std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(summary.perplexity_ratio_se, std::sqrt(2.0) * std::log(2.0) / 2, 1e-6);
}

TEST(DistanceTally, ExcludedTokensAndEmptyTallies) {
  DistanceTally tally;
  EXPECT_EQ(tally.summary().rows, 0u);
  EXPECT_EQ(tally.summary().mean_kl, 0);
  const std::vector<float> truth = {0, -INFINITY};
  tally.add(truth, std::vector<float>{std::log(0.5F), std::log(0.5F)}, std::nullopt);
  EXPECT_NEAR(tally.summary().mean_kl, std::log(2.0), 1e-7);
}

}  // namespace
}  // namespace isthmus
