#include "os/file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "os/file_sim.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::path(testing::TempDir()) / (std::string("isthmus_file_") + info->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  fs::path dir_;
  FileSystem& files_ = real_file_system();
};

TEST_F(FileTest, PublishShowsTheWholeFileAndNothingElse) {
  auto file = AtomicFile::create(files_, path("a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->append(bytes_of("hello ")).ok());
  EXPECT_FALSE(files_.exists(path("a")));
  ASSERT_TRUE(file->append(bytes_of("world")).ok());
  ASSERT_TRUE(file->publish().ok());
  EXPECT_EQ(files_.read(path("a"), 100).value(), "hello world");
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(file->append(bytes_of("x")).code(), Code::kFailedPrecondition);
}

TEST_F(FileTest, UnpublishedFilesVanish) {
  {
    auto file = AtomicFile::create(files_, path("a"));
    ASSERT_TRUE(file->append(bytes_of("x")).ok());
    auto moved = std::move(file).value();
    EXPECT_EQ(entries(), 1u);
    EXPECT_TRUE(is_temporary_name(fs::directory_iterator(dir_)->path().string()));
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(FileTest, PublishReplacesALinkNotItsTarget) {
  std::ofstream(path("target")) << "precious";
  fs::create_symlink(path("target"), path("name"));
  ASSERT_TRUE(publish_file(files_, path("name"), bytes_of("new")).ok());
  EXPECT_FALSE(fs::is_symlink(path("name")));
  EXPECT_EQ(files_.read(path("target"), 100).value(), "precious");
}

TEST_F(FileTest, CreateRefusesExistingNamesAndLinks) {
  std::ofstream(path("there")) << "x";
  fs::create_symlink(path("nowhere"), path("dangling"));
  EXPECT_EQ(files_.create(path("there")).status().code(), Code::kIo);
  EXPECT_EQ(files_.create(path("dangling")).status().code(), Code::kIo);
  EXPECT_FALSE(fs::exists(path("nowhere")));
}

TEST_F(FileTest, ReadHasALimit) {
  std::ofstream(path("a")) << std::string(100'000, 'x');
  EXPECT_EQ(files_.read(path("a"), 99'999).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(files_.read(path("a"), 100'000).value().size(), 100'000u);
  EXPECT_EQ(files_.read(path("a"), 100'001).value().size(), 100'000u);
  EXPECT_EQ(files_.read(path("a"), 0).status().code(), Code::kResourceExhausted);
  EXPECT_GT(files_.read("/proc/self/status", 1 << 20).value().size(), 0u);  // its stated size is 0
}

TEST_F(FileTest, ErrorsNameThePath) {
  const auto missing = files_.read(path("none"), 10).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_NE(missing.message().find(path("none")), std::string::npos);
  EXPECT_EQ(files_.read(dir_.string(), 10).status().code(), Code::kIo);
  EXPECT_EQ(AtomicFile::create(files_, path("no/such/dir")).status().code(), Code::kNotFound);
  EXPECT_EQ(AtomicFile::create(files_, "").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(AtomicFile::create(files_, dir_.string() + "/").status().code(), Code::kInvalidArgument);
}

TEST_F(FileTest, AFullDiskIsResourceExhausted) {
  auto full = real_file_system().read("/dev/full", 8);  // reads zeros without end: the limit stops it
  EXPECT_EQ(full.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(file_error(ENOSPC, "write", "x").code(), Code::kResourceExhausted);
  EXPECT_EQ(file_error(EACCES, "open", "x").message(), "cannot open 'x': Permission denied");
}

TEST(FileNames, DirectoryAndTemporaries) {
  EXPECT_EQ(directory_of("a/b/c"), "a/b");
  EXPECT_EQ(directory_of("c"), ".");
  EXPECT_EQ(directory_of("/c"), "/");
  EXPECT_TRUE(is_temporary_name("x.gguf.part-1234000001"));
  EXPECT_FALSE(is_temporary_name("x.gguf.part-"));
  EXPECT_FALSE(is_temporary_name("x.part-1a"));
  EXPECT_FALSE(is_temporary_name("x.gguf"));
}

// ---- the simulated disk ----

TEST(AtomicFileFaults, AnyFailingStepLeavesTheOldFileOrTheNewOneNeverHalf) {
  for (uint64_t n = 0; n < 12; ++n) {
    SimFileSystem files;
    ASSERT_TRUE(publish_file(files, "d/a", bytes_of("old contents")).ok());
    files.fail_at(n, ENOSPC);
    const auto status = publish_file(files, "d/a", bytes_of("new contents"));
    files.heal();
    const auto now = files.read("d/a", 100).value();
    if (status.ok()) {
      EXPECT_EQ(now, "new contents");
    } else {
      EXPECT_EQ(status.code(), Code::kResourceExhausted);
      EXPECT_TRUE(now == "old contents" || now == "new contents") << n << now;
    }
    EXPECT_TRUE(n > 4 || now == "old contents") << n;  // create, write, sync, close, rename
    EXPECT_TRUE(n < 6 || status.ok()) << n;
  }
}

TEST(AtomicFileFaults, APowerCutAtAnyStepLeavesAWholeFile) {
  for (const auto mode : {SimFileSystem::Crash::kLoseUnsyncedNames, SimFileSystem::Crash::kKeepNames}) {
    for (uint64_t n = 0; n < 8; ++n) {
      SimFileSystem files;
      ASSERT_TRUE(publish_file(files, "d/a", bytes_of("old contents")).ok());
      files.fail_at(n, EIO);  // nothing after step n happens
      const bool published = publish_file(files, "d/a", bytes_of("new contents")).ok();
      files.crash(mode);
      const auto now = files.read("d/a", 100).value();
      EXPECT_TRUE(now == "old contents" || now == "new contents") << n << " '" << now << "'";
      EXPECT_TRUE(!published || now == "new contents");  // what was acknowledged stays
    }
  }
}

TEST(AtomicFileFaults, TheSimulatedDiskReallyLosesWhatWasNotSynced) {
  SimFileSystem files;
  auto file = files.create("d/a").value();
  ASSERT_TRUE(file->append(bytes_of("x")).ok());
  ASSERT_TRUE(files.sync_directory("d").ok());
  files.crash(SimFileSystem::Crash::kLoseUnsyncedNames);
  EXPECT_EQ(files.read("d/a", 10).value(), "");
  file = files.create("d/b").value();
  ASSERT_TRUE(file->append(bytes_of("x")).ok() && file->sync().ok());
  files.crash(SimFileSystem::Crash::kLoseUnsyncedNames);
  EXPECT_FALSE(files.exists("d/b"));
}

}  // namespace
}  // namespace isthmus
