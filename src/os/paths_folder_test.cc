#include "os/paths_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "os/paths_faulty_folder.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "isthmus-folder-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    auto opened = posix_folder(root_ + "/a/b", true);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    folder_ = *opened;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string root_;
  std::shared_ptr<Folder> folder_;
};

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_F(FolderTest, PublishReadListRemove) {
  ASSERT_TRUE(publish_text(*folder_, "x.json", "one").ok());
  ASSERT_TRUE(publish_text(*folder_, "x.json", "two").ok());
  EXPECT_EQ(*read_text(*folder_, "x.json", 100), "two");
  EXPECT_EQ(read_text(*folder_, "x.json", 2).status().code(), Code::kResourceExhausted);
  EXPECT_THAT(*folder_->list(), ElementsAre("x.json"));
  EXPECT_TRUE(folder_->remove("x.json").ok());
  EXPECT_TRUE(folder_->remove("x.json").ok());
  EXPECT_EQ(folder_->info("x.json").status().code(), Code::kNotFound);
}

TEST_F(FolderTest, NamesAreNeverPaths) {
  const std::vector<std::string> names = {
      "", ".", "..", "a/b", "/etc/passwd", "../x", "x/", std::string("a\0b", 3)};
  for (const std::string& name : names) {
    EXPECT_EQ(folder_->open_file(name, OpenMode::kUpdate).status().code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(folder_->subfolder(name).status().code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(folder_->remove(name).code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(folder_->remove_tree(name).code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(folder_->try_lock(name).status().code(), Code::kInvalidArgument) << name;
  }
}

TEST_F(FolderTest, PlantedLinksAreNotFollowed) {
  const std::string victim = root_ + "/victim";
  std::ofstream(victim) << "keep";
  fs::create_symlink(victim, root_ + "/a/b/link");
  fs::create_symlink(root_, root_ + "/a/b/dir");
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kUpdate}) {
    EXPECT_EQ(folder_->open_file("link", mode).status().code(), Code::kFailedPrecondition);
  }
  EXPECT_FALSE(folder_->open_file("link", OpenMode::kCreateNew).ok());
  EXPECT_EQ(folder_->try_lock("link").status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(folder_->subfolder("dir").status().code(), Code::kFailedPrecondition);
  EXPECT_FALSE(folder_->info("link")->is_regular);
  // Publishing replaces the link itself, removing removes it; what it points at stays.
  ASSERT_TRUE(publish_text(*folder_, "link", "new").ok());
  ASSERT_TRUE(folder_->remove_tree("dir").ok());
  std::string text;
  std::ifstream(victim) >> text;
  EXPECT_EQ(text, "keep");
}

TEST_F(FolderTest, FifoIsRefusedWithoutBlocking) {
  ASSERT_EQ(::mkfifo((root_ + "/a/b/fifo").c_str(), 0644), 0);
  EXPECT_EQ(folder_->open_file("fifo", OpenMode::kRead).status().code(), Code::kFailedPrecondition);
}

TEST_F(FolderTest, FilesTruncateSeekAndRename) {
  {
    auto file = folder_->open_file("f", OpenMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write(bytes("hello world")).ok());
    EXPECT_FALSE((*file)->truncate(100).ok());
    ASSERT_TRUE((*file)->truncate(5).ok());
    ASSERT_TRUE((*file)->write(bytes("!")).ok());
    EXPECT_EQ((*file)->info()->size, 6U);
  }
  EXPECT_FALSE(folder_->open_file("f", OpenMode::kCreateNew).ok());
  auto sub = folder_->subfolder("sub");
  ASSERT_TRUE(sub.ok());
  ASSERT_TRUE(folder_->rename("f", **sub, "g").ok());
  EXPECT_EQ(*read_text(**sub, "g", 100), "hello!");
  ASSERT_TRUE((*sub)->make_read_only("g").ok());
  EXPECT_TRUE(folder_->remove_tree("sub").ok());
  EXPECT_FALSE(fs::exists(root_ + "/a/b/sub"));
}

TEST_F(FolderTest, LockExcludesAndWaitsAndSurvivesRemoval) {
  auto first = folder_->try_lock("l");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(folder_->try_lock("l").status().code(), Code::kUnavailable);
  StopPolicy stop;
  stop.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(120);
  int waits = 0;
  EXPECT_EQ(folder_->lock("l", stop, [&] { ++waits; }).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(waits, 1);

  std::atomic<bool> got{false};
  std::thread waiter([&] { got = folder_->lock("l", StopPolicy{}, nullptr).ok(); });
  ASSERT_TRUE(folder_->remove("l").ok());  // the holder removes its file, then lets go
  first->release();
  waiter.join();
  EXPECT_TRUE(got);
}

TEST_F(FolderTest, FaultsComeWherePlanned) {
  auto plan = std::make_shared<FaultPlan>();
  auto folder = faulty_folder(folder_, plan);
  plan->disk_bytes = 4;
  Status full = publish_text(*folder, "x", "12345");
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(*folder_->list(), ElementsAre());
  plan->disk_bytes = 1000;
  plan->fail_file_sync = true;
  EXPECT_EQ(publish_text(*folder, "x", "1").code(), Code::kIo);
  plan->fail_file_sync = false;
  plan->fail_rename = true;
  EXPECT_EQ(publish_text(*folder, "x", "1").code(), Code::kIo);
  EXPECT_THAT(*folder_->list(), ElementsAre());
  plan->fail_rename = false;
  plan->reported_free = 7;
  EXPECT_EQ(*folder->free_bytes(), 7U);
  EXPECT_TRUE(publish_text(*folder, "x", "1").ok());
}

}  // namespace
}  // namespace isthmus
