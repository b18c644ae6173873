// A model file that somebody truncates while it is in use: typed errors, and everything else goes on.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/generate.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;

const std::vector<TokenId> kStart = {40, 41, 42, 43, 44};

/// A copy of a tiny model that may be spoilt. Its embedding is not tied, so rows are read from the file.
class SpoiltModel : public testing::Test {
 protected:
  SpoiltModel() : path_((fs::path(testing::TempDir()) / "isthmus_spoilt.gguf").string()) { restore(); }
  ~SpoiltModel() override { fs::remove(path_); }

  static std::string original() { return std::string(ISTHMUS_TINY_MODELS) + "/llama.gguf"; }
  void restore() {
    fs::remove(path_);
    fs::copy_file(original(), path_);
  }
  uint64_t size() const { return fs::file_size(original()); }

  static Result<std::shared_ptr<LanguageModel>> load(const std::string& path, LoadProgress progress = {}) {
    ModelOptions options;
    options.context = 256;
    options.threads = 2;
    options.progress = std::move(progress);
    return LanguageModel::load(path, std::move(options));
  }

  static GenerateRequest greedy_request() {
    GenerateRequest request;
    request.prompt = kStart;
    request.max_tokens = 12;
    request.ignore_stop_tokens = true;
    request.sampler.temperature = 0;
    return request;
  }

  static std::vector<TokenId> text_of(const std::shared_ptr<LanguageModel>& model) {
    const auto session = Session::create(model);
    EXPECT_TRUE(session.ok());
    const auto result = generate(**session, greedy_request());
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? result->tokens : std::vector<TokenId>();
  }

  void expect_truncated(const Status& status) const {
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.to_string();
    EXPECT_NE(status.message().find(path_), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find("was truncated while in use"), std::string::npos) << status.to_string();
  }

  const std::string path_;
};

TEST_F(SpoiltModel, AnyPointOfLoadingGivesAnErrorAndOtherModelsGoOn) {
  const auto other = load(original());
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  const auto expected = text_of(*other);
  int points = 0;
  ASSERT_TRUE(load(path_, [&](uint64_t, uint64_t) { ++points; }).ok());
  ASSERT_GT(points, 10);
  // Behind the last call nothing more is read.
  for (int point = 0; point + 1 < points; ++point) {
    for (const uint64_t left : {uint64_t{0}, uint64_t{5000}, size() / 2, size() - 5000, size() - 1}) {
      restore();
      int calls = 0;
      const auto spoilt = load(path_, [&](uint64_t, uint64_t) {
        if (calls++ == point) fs::resize_file(path_, left);
      });
      ASSERT_FALSE(spoilt.ok()) << "point " << point << ", " << left << " bytes left";
      expect_truncated(spoilt.status());
    }
  }
  EXPECT_EQ(text_of(*other), expected);
  restore();
  const auto healed = load(path_);
  ASSERT_TRUE(healed.ok()) << healed.status().to_string();
  EXPECT_EQ(text_of(*healed), expected);
}

TEST_F(SpoiltModel, ALossBetweenTwoTokensStopsTheAnswerWithAnError) {
  const auto other = load(original());
  ASSERT_TRUE(other.ok());
  const auto expected = text_of(*other);
  const auto spoilt = load(path_);
  ASSERT_TRUE(spoilt.ok()) << spoilt.status().to_string();
  const auto session = Session::create(*spoilt);
  ASSERT_TRUE(session.ok());
  GenerateRequest request = greedy_request();
  size_t tokens = 0;
  request.on_token = [&](const Sampled&) {
    if (++tokens == 3) fs::resize_file(path_, 0);
  };
  const auto result = generate(**session, request);
  ASSERT_FALSE(result.ok());
  expect_truncated(result.status());
  EXPECT_EQ(tokens, 3U);
  // The session holds what was read before, and says the same again; the other model does not notice.
  EXPECT_EQ((*session)->tokens().size(), kStart.size() + 2);
  expect_truncated((*session)->append(kStart, Purpose::kPrompt, {}));
  EXPECT_EQ((*session)->tokens().size(), kStart.size() + 2);
  EXPECT_EQ(text_of(*other), expected);
}

TEST_F(SpoiltModel, ATiedModelNeedsItsFileOnlyWhileLoading) {
  fs::remove(path_);
  fs::copy_file(std::string(ISTHMUS_TINY_MODELS) + "/llama-tied-f16.gguf", path_);
  const auto model = load(path_);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto expected = text_of(*model);
  fs::resize_file(path_, 0);
  EXPECT_EQ(text_of(*model), expected);
}

}  // namespace
}  // namespace isthmus
