// The packed cache as a model uses it: hits give the same bits, everything else is a miss that nobody
// notices.
#include "model/packed_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "model/packed_folder.h"
#include "model/testing/harness.h"
#include "os/file_sim.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using testing::some_tokens;

struct Start {
  PackedReport report;
  std::vector<float> logits;
};

class PackedCacheFile : public ::testing::Test {
 protected:
  PackedCacheFile() {
    root_ = fs::path(::testing::TempDir()) /
            ("isthmus_packed_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
    copy("llama.gguf");
    options_.folder = (root_ / "cache" / "packed").string();
  }
  ~PackedCacheFile() override { fs::remove_all(root_); }

  std::string model() const { return (root_ / "model.gguf").string(); }
  fs::path cache() const { return fs::path(options_.folder) / packed_file_name(model()); }
  void copy(const std::string& name) const {
    fs::copy_file(fs::path(ISTHMUS_TINY_MODELS) / name, model(), fs::copy_options::overwrite_existing);
  }

  /// Loads the model with the cache, runs a few tokens, waits for the writer, and reports what it said last.
  Start start(Compute compute = Compute::kInt16) const {
    testing::Harness h(model(), compute, 256, 2, KvType::kF32, KeyEncoding::kAbsolute, options_);
    Start out;
    out.logits = h.run_fresh(some_tokens(9, 1), compute);
    while (h.model->packed_report().state == PackedState::kWriting) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    out.report = h.model->packed_report();
    return out;
  }
  /// A start that must pack, and give the same bits as ever.
  void expect_miss(const std::string& reason) const {
    const Start got = start();
    EXPECT_EQ(got.report.state, PackedState::kWritten) << got.report.reason;
    EXPECT_NE(got.report.reason.find(reason), std::string::npos) << got.report.reason;
  }
  void expect_hit() const { EXPECT_EQ(start().report.state, PackedState::kHit); }

  std::string bytes_of(const fs::path& path) const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void set_bytes(const fs::path& path, const std::string& bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path root_;
  PackedCacheOptions options_;
};

TEST_F(PackedCacheFile, SecondStartHitsWithTheSameBits) {
  const Start first = start();
  EXPECT_EQ(first.report.state, PackedState::kWritten);
  EXPECT_EQ(first.report.reason, "there was none");
  const Start second = start();
  EXPECT_EQ(second.report.state, PackedState::kHit);
  EXPECT_EQ(second.logits, first.logits);
  options_.folder.clear();
  const Start without = start();
  EXPECT_EQ(without.report.state, PackedState::kOff);
  EXPECT_EQ(without.logits, first.logits);
}

TEST_F(PackedCacheFile, EveryFamilyHitsWithTheSameBits) {
  for (const auto& entry : fs::directory_iterator(ISTHMUS_TINY_MODELS)) {
    if (entry.path().extension() != ".gguf") continue;
    copy(entry.path().filename());
    const Start first = start();
    const Start second = start();
    EXPECT_EQ(first.report.state, PackedState::kWritten) << entry.path();
    EXPECT_EQ(second.report.state, PackedState::kHit) << entry.path();
    EXPECT_EQ(second.logits, first.logits) << entry.path();
  }
}

TEST_F(PackedCacheFile, AModelChangedInPlaceIsAMiss) {
  start();
  const auto before = fs::last_write_time(model());
  std::string bytes = bytes_of(model());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  set_bytes(model(), bytes);
  fs::last_write_time(model(), before);  // as a careful liar would
  expect_miss("the model's file has changed");
  expect_hit();
}

TEST_F(PackedCacheFile, AnotherModelUnderTheNameIsAMiss) {
  start();
  fs::remove(model());
  copy("qwen2.gguf");
  expect_miss("the model's file has changed");
  EXPECT_EQ(packed_folder_facts(options_.folder).files, 1u);
}

TEST_F(PackedCacheFile, AnotherPrecisionIsNotServed) {
  start();
  const Start exact = start(Compute::kF32);
  EXPECT_EQ(exact.report.state, PackedState::kOff);
  expect_hit();
}

TEST_F(PackedCacheFile, TruncationsAndFlippedBytesAreMisses) {
  start();
  const std::string good = bytes_of(cache());
  const uint64_t head_bytes = packed_head_bytes(std::as_bytes(std::span(good))).value();
  for (const size_t length :
       {size_t{0}, size_t{7}, size_t{4095}, size_t{4096}, good.size() / 2, good.size() - 1}) {
    set_bytes(cache(), good.substr(0, length));
    expect_miss("");
    EXPECT_EQ(bytes_of(cache()).size(), good.size()) << length;
  }
  set_bytes(cache(), good + "x");
  expect_miss("not as long as its head says");
  // A byte of each piece of the data, and the very last.
  std::vector<size_t> places = {good.size() - 1};
  for (size_t at = head_bytes; at < good.size(); at += kPackedPieceBytes) places.push_back(at);
  for (const size_t at : places) {
    std::string bad = bytes_of(cache());
    bad[at] = static_cast<char>(bad[at] ^ 4);
    set_bytes(cache(), bad);
    expect_miss("wrong checksum");
  }
  expect_hit();
}

TEST_F(PackedCacheFile, AnotherLayoutIsAMiss) {
  start();
  const std::string good = bytes_of(cache());
  const auto as_bytes = std::as_bytes(std::span(good));
  const uint64_t length = packed_head_bytes(as_bytes).value();
  PackedHead head = parse_packed_head(as_bytes.first(length)).value();
  head.key.layout = kPanelLayoutVersion + 1;
  const auto changed = encode_packed_head(head);
  ASSERT_EQ(changed.size(), length);
  std::string bytes(reinterpret_cast<const char*>(changed.data()), changed.size());
  set_bytes(cache(), bytes + good.substr(length));
  expect_miss("another version of the program");
}

TEST_F(PackedCacheFile, AFailingDiskIsReportedAndHarmless) {
  const std::vector<float> want = start().logits;
  fs::remove(cache());
  for (uint64_t n = 0; n < 6; ++n) {
    SimFileSystem files;
    files.fail_at(n, ENOSPC);
    options_.files = &files;
    const Start got = start();
    EXPECT_EQ(got.report.state, PackedState::kFailed) << n;
    EXPECT_FALSE(got.report.reason.empty());
    EXPECT_EQ(got.logits, want);
  }
}

TEST_F(PackedCacheFile, AFolderThatCannotBeMadeIsReportedAndHarmless) {
  set_bytes(root_ / "cache", "a file where a folder should be");
  const Start got = start();
  EXPECT_EQ(got.report.state, PackedState::kFailed);
  EXPECT_FALSE(got.report.reason.empty());
}

TEST_F(PackedCacheFile, SeveralStartsAtOnceLeaveAWholeFile) {
  std::vector<std::thread> threads;
  std::vector<Start> starts(4);
  for (auto& s : starts) threads.emplace_back([&] { s = start(); });
  for (auto& thread : threads) thread.join();
  for (const auto& s : starts) EXPECT_EQ(s.logits, starts.front().logits);
  expect_hit();
  EXPECT_EQ(packed_folder_facts(options_.folder).files, 1u);
}

TEST_F(PackedCacheFile, CleaningKeepsWhatIsOfUse) {
  start();
  const fs::path folder = options_.folder;
  const uint64_t size = fs::file_size(cache());
  set_bytes(folder / "0123456789abcdef.packed", "damaged");
  set_bytes(folder / "x.packed.part-12", "being written");
  set_bytes(folder / "y.packed.part-13", "left by a crash");
  fs::last_write_time(folder / "y.packed.part-13", fs::file_time_type::clock::now() - std::chrono::hours(2));
  set_bytes(folder / "notes.txt", "not ours");
  EXPECT_EQ(clean_packed(folder, "", 0, size), 22u);
  EXPECT_TRUE(fs::exists(cache()) && fs::exists(folder / "x.packed.part-12") &&
              fs::exists(folder / "notes.txt"));
  // Over the limit it goes, though it is of use; kept by name it stays.
  EXPECT_EQ(clean_packed(folder, cache().filename(), 1, size), 0u);
  EXPECT_EQ(clean_packed(folder, "", 1, size), size);
  start();
  fs::remove(model());
  EXPECT_EQ(clean_packed(folder, "", 0, UINT64_MAX), size);
}

TEST_F(PackedCacheFile, RemovingAModelRemovesItsFile) {
  start();
  const uint64_t size = fs::file_size(cache());
  fs::remove(model());
  EXPECT_EQ(remove_packed(options_.folder, model()), size);
  EXPECT_FALSE(fs::exists(cache()));
  EXPECT_EQ(remove_packed(options_.folder, model()), 0u);
}

TEST_F(PackedCacheFile, TheLimitIsKept) {
  options_.limit = 1000;
  const Start got = start();
  EXPECT_EQ(got.report.state, PackedState::kFailed);
  EXPECT_NE(got.report.reason.find("larger than"), std::string::npos);
}

TEST(PackedCacheFolder, FollowsTheEnvironment) {
  const auto with = [](const std::string& value) {
    return standard_packed_cache([value](const std::string& name) -> std::optional<std::string> {
      if (name == "ISTHMUS_CACHE") return "/c";
      if (name == "ISTHMUS_PACKED_CACHE" && !value.empty()) return value;
      return std::nullopt;
    });
  };
  EXPECT_EQ(with("").folder, "/c/packed");
  EXPECT_EQ(with("off").folder, "");
}

}  // namespace
}  // namespace isthmus
