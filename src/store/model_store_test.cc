#include "store/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/partial_file.h"
#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::model_bytes;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() : store_(*ModelStore::open(folder_.path() + "/models")) {}

  /// Puts a model with this content under this name.
  std::string add(const std::string& name, const std::string& content) {
    Manifest manifest;
    manifest.name = name;
    manifest.sha256 = sha256_of(content);
    manifest.size = content.size();
    manifest.source = "file:/x";
    manifest.pulled_at = "2026-01-01T00:00:00Z";
    write_file(store_.blob_path(manifest.sha256), content);
    EXPECT_TRUE(store_.put(manifest).ok());
    return manifest.sha256;
  }

  TemporaryFolder folder_;
  ModelStore store_;
};

TEST_F(StoreTest, ListFindAndSuggest) {
  EXPECT_TRUE(store_.list()->empty());
  add("b:1", model_bytes(100));
  add("a", model_bytes(200, 1));
  const auto models = *store_.list();
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0].manifest.name, "a");
  EXPECT_EQ(models[1].manifest.name, "b:1");
  EXPECT_TRUE(models[1].state.ok());
  EXPECT_EQ(read_file(models[1].path), model_bytes(100));
  EXPECT_THAT(store_.find("b:2").status().message(), HasSubstr("'b:1'"));
  EXPECT_EQ(store_.find("../a").status().code(), Code::kInvalidArgument);
}

TEST_F(StoreTest, RemoveKeepsWhatIsShared) {
  const std::string digest = add("a", model_bytes(100));
  add("b", model_bytes(100));
  const auto first = store_.remove("a");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->file_kept);
  EXPECT_TRUE(fs::exists(store_.blob_path(digest)));
  const auto second = store_.remove("b");
  EXPECT_EQ(second->freed_bytes, 100U);
  EXPECT_FALSE(fs::exists(store_.blob_path(digest)));
  EXPECT_EQ(store_.remove("b").status().code(), Code::kNotFound);
}

TEST_F(StoreTest, BadManifestIsShownAndProtectsFiles) {
  const std::string digest = add("a", model_bytes(100));
  write_file(store_.path() + "/names/bad.json", "{\"format\": 1");
  write_file(store_.path() + "/names/not a name.json", "{}");
  const auto models = *store_.list();
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[1].state.code(), Code::kCorrupt);
  EXPECT_TRUE(store_.remove("a")->file_kept) << "nobody knows what the bad one needs";
  EXPECT_TRUE(fs::exists(store_.blob_path(digest)));
  ASSERT_TRUE(store_.remove("bad").ok());
  EXPECT_EQ(*store_.clean(StopPolicy{}), 100U);
  EXPECT_FALSE(fs::exists(store_.blob_path(digest)));
}

TEST_F(StoreTest, ManifestOfAnotherNameIsNotBelieved) {
  add("a", model_bytes(100));
  fs::copy_file(store_.path() + "/names/a.json", store_.path() + "/names/b.json");
  EXPECT_EQ(store_.find("b")->state.code(), Code::kCorrupt);
}

TEST_F(StoreTest, VerifyReadsTheBytes) {
  const std::string digest = add("a", model_bytes(3'000'000));
  uint64_t last = 0;
  const auto good = store_.verify("a", StopPolicy{}, [&](uint64_t done, uint64_t) { last = done; });
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good->good);
  EXPECT_EQ(last, 3'000'000U);
  std::string damaged = model_bytes(3'000'000);
  damaged[2'000'000] = static_cast<char>(damaged[2'000'000] ^ 1);
  write_file(store_.blob_path(digest), damaged);
  const auto bad = store_.verify("a", StopPolicy{}, nullptr);
  ASSERT_TRUE(bad.ok());
  EXPECT_FALSE(bad->good);
  EXPECT_NE(bad->actual_sha256, digest);
  fs::resize_file(store_.blob_path(digest), 10);
  EXPECT_EQ(store_.find("a")->state.code(), Code::kCorrupt);
  fs::remove(store_.blob_path(digest));
  EXPECT_EQ(store_.find("a")->state.code(), Code::kNotFound);
}

TEST_F(StoreTest, PlantedLinksAreNotFollowed) {
  const std::string secret = folder_.path() + "/secret";
  write_file(secret, model_bytes(100));
  const std::string digest = add("a", model_bytes(100));
  fs::remove(store_.blob_path(digest));
  fs::create_symlink(secret, store_.blob_path(digest));
  EXPECT_EQ(store_.find("a")->state.code(), Code::kCorrupt);
  EXPECT_FALSE(store_.verify("a", StopPolicy{}, nullptr).ok());
  fs::create_symlink(secret, store_.path() + "/names/link.json");
  EXPECT_FALSE(store_.find("link")->state.ok());
  ASSERT_TRUE(store_.remove("a").ok());
  EXPECT_TRUE(fs::exists(secret));
  fs::remove(store_.path() + "/store.lock");
  fs::create_symlink(secret, store_.path() + "/store.lock");
  EXPECT_FALSE(store_.lock(StopPolicy{}).ok());
  fs::remove_all(store_.path() + "/blobs");
  fs::create_directory_symlink(folder_.path(), store_.path() + "/blobs");
  EXPECT_EQ(ModelStore::open(store_.path()).status().code(), Code::kFailedPrecondition);
}

TEST_F(StoreTest, CleanTakesOldLeftoversOnly) {
  const std::string partial = store_.path() + "/partial/";
  const std::string fresh(64, '1');
  const std::string old(64, '2');
  const std::string busy(64, '3');
  for (const std::string& key : {fresh, old, busy}) {
    write_file(partial + key + ".data", "1234");
    fs::create_directory(partial + key + ".pip");
  }
  const auto past = fs::file_time_type::clock::now() - std::chrono::hours(24 * 30);
  fs::last_write_time(partial + old + ".data", past);
  fs::last_write_time(partial + busy + ".data", past);
  const auto held = store_.partial().try_lock(busy + ".lock");
  ASSERT_TRUE(held.ok());
  write_file(store_.blob_path(std::string(64, 'e')), "orphan");
  EXPECT_EQ(*store_.clean(StopPolicy{}), 4U + 6U);
  EXPECT_TRUE(fs::exists(partial + fresh + ".data"));
  EXPECT_FALSE(fs::exists(partial + fresh + ".pip")) << "a wheel cannot be continued";
  EXPECT_FALSE(fs::exists(partial + old + ".data"));
  EXPECT_TRUE(fs::exists(partial + busy + ".data"));
  EXPECT_TRUE(fs::exists(partial + busy + ".pip"));
}

class PartialTest : public StoreTest {
 protected:
  std::unique_ptr<PartialFile> open(const std::string& source, bool trust) {
    auto file = PartialFile::open(store_.partial(), key_, source, trust, StopPolicy{}, nullptr);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return std::move(*file);
  }
  const std::string key_ = std::string(64, 'a');
};

TEST_F(PartialTest, GoesOnWhereItStopped) {
  {
    auto file = open("s", true);
    ASSERT_TRUE(file->append(bytes("GGUFpart one")).ok());
    ASSERT_TRUE(file->finish_part().ok());
    ASSERT_TRUE(file->append(bytes("+two")).ok());
    ASSERT_TRUE(file->set_validator("\"v\"", std::string(64, 'b')).ok());
    ASSERT_TRUE(file->append(bytes("lost?")).ok());
  }
  {
    auto wary = open("s", false);
    EXPECT_EQ(wary->size(), 12U) << "only what was surely on the disk";
    EXPECT_EQ(wary->parts_done(), 1U);
    ASSERT_TRUE(wary->append(bytes("+two")).ok());
  }
  auto file = open("s", true);
  EXPECT_EQ(file->size(), 16U);
  EXPECT_EQ(file->part_begin(), 12U);
  EXPECT_EQ(file->validator(), "\"v\"");
  EXPECT_EQ(*file->head(4), "GGUF");
  ASSERT_TRUE(file->cut(14, StopPolicy{}).ok());
  ASSERT_TRUE(file->append(bytes("end")).ok());
  EXPECT_EQ(*file->finish_digest(), sha256_of("GGUFpart one+tend"));
  ASSERT_TRUE(file->publish(store_.blobs(), "x.gguf").ok());
  EXPECT_EQ(read_file(store_.path() + "/blobs/x.gguf"), "GGUFpart one+tend");
  EXPECT_TRUE(fs::is_empty(store_.path() + "/partial"));
}

TEST_F(PartialTest, OtherSourceOrBadRecordMeansFromNothing) {
  {
    auto file = open("s", true);
    ASSERT_TRUE(file->append(bytes("abc")).ok());
    ASSERT_TRUE(file->finish_part().ok());
  }
  EXPECT_EQ(open("s", true)->size(), 3U);
  for (const char* record : {"", "{", "{\"format\": 1}", "[]"}) {
    write_file(store_.path() + "/partial/" + key_ + ".data", "abc");
    write_file(store_.path() + "/partial/" + key_ + ".json", record);
    EXPECT_EQ(open("s", true)->size(), 0U) << record;
  }
  {
    auto file = open("s", true);
    ASSERT_TRUE(file->append(bytes("abc")).ok());
    ASSERT_TRUE(file->finish_part().ok());
  }
  EXPECT_EQ(open("t", true)->size(), 0U);
}

TEST_F(PartialTest, RecordThatPromisesTooMuchIsDropped) {
  {
    auto file = open("s", true);
    ASSERT_TRUE(file->append(bytes("abcdef")).ok());
    ASSERT_TRUE(file->finish_part().ok());
  }
  fs::resize_file(store_.path() + "/partial/" + key_ + ".data", 3);
  EXPECT_EQ(open("s", true)->size(), 0U);
}

}  // namespace
}  // namespace isthmus
