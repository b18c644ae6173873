#include "store/hash_memory.h"

#include <gtest/gtest.h>

#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using testing::model_bytes;
using testing::read_file;
using testing::write_file;

class HashMemoryTest : public ::testing::Test {
 protected:
  HashMemoryTest() : memory_(*posix_folder(folder_.path() + "/memory", true)) {}
  /// Writes the file as if it had been there for an hour.
  void write(const std::string& content, int minutes = 60) {
    write_file(path_, content);
    fs::last_write_time(path_, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
  }
  Result<FileDigest> digest() { return file_digest(path_, *memory_, StopPolicy{}, nullptr); }

  testing::TemporaryFolder folder_;
  std::shared_ptr<Folder> memory_;
  std::string path_ = folder_.path() + "/m.gguf";
};

TEST_F(HashMemoryTest, SecondTimeIsRemembered) {
  write(model_bytes(100'000));
  EXPECT_FALSE(digest()->remembered);
  const auto again = digest();
  EXPECT_TRUE(again->remembered);
  EXPECT_EQ(again->sha256, sha256_of(model_bytes(100'000)));
  fs::create_symlink(path_, folder_.path() + "/link");
  EXPECT_TRUE(file_digest(folder_.path() + "/link", *memory_, StopPolicy{}, nullptr)->remembered);
}

TEST_F(HashMemoryTest, ChangedContentSizeOrTimeIsReadAgain) {
  write(model_bytes(1000));
  ASSERT_TRUE(digest().ok());
  write(model_bytes(1000, 1), 50);
  EXPECT_FALSE(digest()->remembered);
  EXPECT_EQ(digest()->sha256, sha256_of(model_bytes(1000, 1)));
  write(model_bytes(1001, 1), 50);
  EXPECT_EQ(digest()->sha256, sha256_of(model_bytes(1001, 1)));
}

TEST_F(HashMemoryTest, FreshFilesAreNotRemembered) {
  write_file(path_, model_bytes(1000));
  ASSERT_TRUE(digest().ok());
  EXPECT_FALSE(digest()->remembered);
}

TEST_F(HashMemoryTest, BadRecordsAreIgnored) {
  write(model_bytes(1000));
  ASSERT_TRUE(digest().ok());
  const std::string record = memory_->path() + "/" + memory_->list()->at(0);
  const std::string good = read_file(record);
  for (const std::string& bad :
       {std::string(), std::string("{"), good.substr(0, good.size() / 2), std::string(5000, ' '),
        std::string("{\"format\": 1, \"size\": 1000, \"mtime_ns\": 7, \"sha256\": \"../\"}")}) {
    write_file(record, bad);
    EXPECT_FALSE(digest()->remembered);
    EXPECT_TRUE(digest()->remembered) << "and replaced by a good one";
  }
}

TEST_F(HashMemoryTest, MissingFileIsNotFound) { EXPECT_EQ(digest().status().code(), Code::kNotFound); }

}  // namespace
}  // namespace isthmus
