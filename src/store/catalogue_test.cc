#include "store/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/json_text.h"
#include "store/model_store.h"
#include "store/sha256.h"

namespace isthmus {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"({"format": 1, "models": [{"name": "m:1", "aliases": ["m"], "title": "t",
  "architecture": "llama", "size": 10,
  "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
  "licence": {"id": "MIT", "name": "MIT", "url": "https://example.com"},
  "sources": ["https://example.com/m.gguf"]}]})";

/// kGood with one replacement.
std::string with(const std::string& from, const std::string& to) {
  std::string out = kGood;
  const size_t at = out.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return out.replace(at, from.size(), to);
}

TEST(Catalogue, BuiltInIsWholeAndItsLicencesAreMarked) {
  const auto catalogue = Catalogue::built_in();
  ASSERT_TRUE(catalogue.ok()) << catalogue.status().to_string();
  EXPECT_EQ(catalogue->entries().size(), 4U);
  const CatalogueEntry* small = catalogue->find("smollm2");
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->name, "smollm2:135m");
  EXPECT_FALSE(small->licence.must_accept);
  const CatalogueEntry* gemma = catalogue->find("gemma3:270m");
  ASSERT_NE(gemma, nullptr);
  EXPECT_TRUE(gemma->licence.must_accept);
  EXPECT_FALSE(gemma->licence.terms.empty());
  EXPECT_EQ(gemma->sources.at(0).parts.size(), 4U);
  EXPECT_EQ(catalogue->find("qwen2.5-coder:1.5b")->sources.at(0).parts.size(), 22U);
  EXPECT_EQ(catalogue->find("nothing"), nullptr);
}

TEST(Catalogue, EveryMistakeIsNamed) {
  ASSERT_TRUE(Catalogue::parse(kGood).ok());
  const std::vector<std::pair<std::string, std::string>> broken = {
      {with("\"m:1\"", "\"../x\""), "'name'"},
      {with("[\"m\"]", "[\"M\"]"), "'aliases'"},
      {with("[\"m\"]", "\"m\""), "'aliases'"},
      {with("\"size\": 10", "\"size\": -1"), "'size'"},
      {with("\"size\": 10", "\"size\": 0"), "'size'"},
      {with("\"size\": 10", "\"size\": \"10\""), "'size'"},
      {with("89abcdef\",", "89ABCDEF\","), "'sha256'"},
      {with("\"https://example.com/m.gguf\"", ""), "'sources'"},
      {with("\"https://example.com/m.gguf\"", "\"m.gguf\""), "'sources'"},
      {with("\"https://example.com/m.gguf\"", "\"hf:x\""), "'sources'"},
      {with("\"https://example.com/m.gguf\"", "7"), "'sources'"},
      {with("\"licence\": {", "\"licence_\": {"), "'licence'"},
      {with("[\"m\"]", "[\"m\", \"m\"]"), "twice"}};
  for (const auto& [text, word] : broken) {
    const auto result = Catalogue::parse(text);
    ASSERT_FALSE(result.ok()) << word;
    EXPECT_EQ(result.status().code(), Code::kCorrupt) << word;
    EXPECT_THAT(result.status().message(), HasSubstr(word));
  }
  EXPECT_EQ(Catalogue::parse(with("\"format\": 1", "\"format\": 2")).status().code(), Code::kUnsupported);
  for (const char* text : {"", "[]", "{", "null", "{\"format\": 1}", "{\"format\": 1, \"models\": {}}"}) {
    EXPECT_EQ(Catalogue::parse(text).status().code(), Code::kCorrupt) << text;
  }
}

TEST(Catalogue, UsersOwnGoesBefore) {
  const auto built_in = *Catalogue::built_in();
  const auto own = *Catalogue::parse(with("\"m:1\"", "\"smollm2:135m\""));
  const Catalogue both = built_in.overlaid_by(own);
  EXPECT_EQ(both.entries().size(), 4U);
  EXPECT_EQ(both.find("smollm2:135m")->size, 10U);
  EXPECT_EQ(both.find("smollm2"), nullptr) << "the hidden entry takes its aliases with it";
  EXPECT_NE(both.find("gemma3"), nullptr);
}

TEST(Json, LimitsHold) {
  EXPECT_EQ(parse_json_object(std::string(100, ' '), {10, 4}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(parse_json_object("{\"a\": [[[[]]]]}", {100, 4}).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(parse_json_object("{\"a\": [[[\"[[[[[\"]]]}", {100, 4}).ok());
  EXPECT_EQ(parse_json_object(std::string(1000, '['), {10000, 16}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(json_text({{"a", "\xff"}}), "{\n  \"a\": \"\xef\xbf\xbd\"\n}\n");
}

TEST(Manifest, RoundTripAndMistakes) {
  Manifest manifest;
  manifest.name = "m:1";
  manifest.sha256 = std::string(64, 'a');
  manifest.size = 12345678901;
  manifest.source = "hf:o/r/f.gguf";
  manifest.licence = {"MIT", "MIT licence", "https://example.com", "terms \"quoted\"", true};
  manifest.licence_accepted = true;
  manifest.pulled_at = "2026-01-31T12:00:00Z";
  const auto back = parse_manifest(manifest_text(manifest));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(manifest_text(*back), manifest_text(manifest));
  const std::string text = manifest_text(manifest);
  for (size_t cut = 0; cut + 2 < text.size(); ++cut) EXPECT_FALSE(parse_manifest(text.substr(0, cut)).ok());
  manifest.sha256 = "../../" + std::string(58, 'a');
  EXPECT_EQ(parse_manifest(manifest_text(manifest)).status().code(), Code::kCorrupt);
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 hash;
  for (const char c : std::string(1'000'000, 'a')) hash.update(std::as_bytes(std::span(&c, 1)));
  EXPECT_EQ(*hash.finish(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_FALSE(hash.finish().ok()) << "used up";
}

TEST(Sha256, OnlySixtyFourLowerHexDigits) {
  EXPECT_TRUE(is_sha256(std::string(64, 'f')));
  for (const std::string& bad : {std::string(63, 'f'), std::string(65, 'f'), std::string(64, 'F'),
                                 std::string(64, 'g'), std::string(63, 'f') + "\n", std::string()}) {
    EXPECT_FALSE(is_sha256(bad));
  }
}

}  // namespace
}  // namespace isthmus
