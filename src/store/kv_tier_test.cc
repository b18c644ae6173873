// The flash tier under quota, damage, two owners, full disks, and death at every step that writes.
#include "store/kv_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <thread>

#include "base/rng.h"
#include "os/paths_faulty_folder.h"
#include "store/testing/fault_vfs.h"
#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using testing::FaultVfs;
using testing::TemporaryFolder;

constexpr size_t kSampleBytes = 100'000;  // of a record's data

Digest key_of(const std::string& text) { return *sha256_digest(std::as_bytes(std::span(text))); }

/// Record `number` of a text: three keys each, the last of which is its name.
std::vector<std::byte> text_record(const std::string& text, size_t number) {
  RecordHead head;
  head.label = text;
  head.identity = key_of("model");
  const auto key = [&](size_t i) { return key_of(text + std::to_string(i)); };
  head.parent = number == 0 ? key_of("root") : key(3 * number - 1);
  for (size_t i = 0; i < 3; ++i) head.keys.push_back(key(3 * number + i));
  head.first_token = static_cast<uint32_t>(96 * number);
  head.tokens = 96;
  RecordWriter writer(std::move(head), kSampleBytes);
  Rng rng(number + text.size());
  for (std::byte& b : writer.data()) b = static_cast<std::byte>(rng.below(256));
  return writer.finish();
}
Digest text_key(const std::string& text, size_t i) { return key_of(text + std::to_string(i)); }
const size_t kRecordBytes = text_record("a", 0).size();

class KvTierTest : public ::testing::Test {
 protected:
  std::string root() const { return folder_.path() + "/kv"; }
  std::string file(const std::string& text, size_t number) const {
    return root() + "/records/" + hex_of(text_key(text, 3 * number + 2));
  }
  std::unique_ptr<KvTier> open(uint64_t quota = uint64_t{1} << 30) {
    KvTierOptions options;
    options.quota = quota;
    options.disk_reserve = 0;
    options.now_ns = [this] { return ++clock_; };
    auto tier = KvTier::open(root(), options);
    EXPECT_TRUE(tier.ok()) << tier.status().to_string();
    return tier.ok() ? std::move(*tier) : nullptr;
  }
  static void expect_there(KvTier& tier, const std::string& text, size_t number) {
    const auto want = text_record(text, number);
    for (size_t i = 3 * number; i < 3 * number + 3; ++i) {
      EXPECT_TRUE(tier.holds(text_key(text, i))) << text << i;
      const auto got = tier.read(text_key(text, i));
      ASSERT_TRUE(got.ok()) << text << i << ": " << got.status().to_string();
      EXPECT_EQ(*got, want) << text << i;
    }
  }
  static void expect_gone(KvTier& tier, const std::string& text, size_t number) {
    EXPECT_FALSE(tier.holds(text_key(text, 3 * number))) << text << number;
    EXPECT_FALSE(tier.read(text_key(text, 3 * number)).ok()) << text << number;
  }

  TemporaryFolder folder_;
  int64_t clock_ = 1000;
};

TEST_F(KvTierTest, KeepsRecordsOverARestart) {
  {
    const auto tier = open();
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(tier->write(text_record("a", i)).ok());
    ASSERT_TRUE(tier->write(text_record("a", 1)).ok());  // again
    expect_there(*tier, "a", 1);
    EXPECT_EQ(tier->read(text_key("b", 0)).status().code(), Code::kNotFound);
    const KvTierFigures f = tier->figures();
    EXPECT_EQ(f.written, 3U);
    EXPECT_EQ(f.hits, 3U);
    EXPECT_EQ(f.misses, 1U);
  }
  const auto tier = open();
  for (size_t i = 0; i < 3; ++i) expect_there(*tier, "a", i);
  EXPECT_EQ(tier->figures().records, 3U);
  EXPECT_EQ(tier->figures().bytes, 3 * kRecordBytes);
  EXPECT_FALSE(tier->figures().index_rebuilt);
  const auto rows = tier->list();
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 3U);
  const auto last =
      std::find_if(rows->begin(), rows->end(), [](const auto& r) { return r.first_token == 192; });
  ASSERT_NE(last, rows->end());
  EXPECT_EQ(last->label, "a");
  EXPECT_EQ(last->parent_name, text_key("a", 5));
  const fs::perms mode = fs::status(root()).permissions();
  EXPECT_EQ(mode & (fs::perms::group_all | fs::perms::others_all), fs::perms::none);
}

TEST_F(KvTierTest, EvictsWhatWasUsedLongestAgoAndNoParentBeforeItsChildren) {
  const auto tier = open(4 * kRecordBytes + 10);
  ASSERT_TRUE(tier->write(text_record("a", 0)).ok());
  ASSERT_TRUE(tier->write(text_record("a", 1)).ok());
  ASSERT_TRUE(tier->write(text_record("b", 0)).ok());
  ASSERT_TRUE(tier->write(text_record("c", 0)).ok());
  expect_there(*tier, "a", 1);  // a0, its parent, is the one used longest ago
  ASSERT_TRUE(tier->write(text_record("d", 0)).ok());
  expect_gone(*tier, "b", 0);
  ASSERT_TRUE(tier->write(text_record("e", 0)).ok());
  expect_gone(*tier, "c", 0);
  ASSERT_TRUE(tier->write(text_record("f", 0)).ok());
  expect_gone(*tier, "a", 1);
  expect_there(*tier, "a", 0);
  EXPECT_EQ(tier->figures().evicted, 3U);
  EXPECT_LE(tier->figures().bytes, 4 * kRecordBytes + 10);
}

TEST_F(KvTierTest, ATextLargerThanTheQuotaKeepsItsBeginning) {
  const auto tier = open(2 * kRecordBytes);
  ASSERT_TRUE(tier->write(text_record("a", 0)).ok());
  ASSERT_TRUE(tier->write(text_record("a", 1)).ok());
  EXPECT_EQ(tier->write(text_record("a", 2)).code(), Code::kResourceExhausted);
  expect_there(*tier, "a", 0);
  expect_there(*tier, "a", 1);
  EXPECT_TRUE(tier->figures().read_only.empty());  // the disk has room
  EXPECT_EQ(open(kRecordBytes - 1)->write(text_record("z", 0)).code(), Code::kResourceExhausted);
}

TEST_F(KvTierTest, DamagedRecordsAreMissesAndGone) {
  ASSERT_TRUE(open()->write(text_record("a", 0)).ok());
  const std::string good = testing::read_file(file("a", 0));
  const auto damages = std::vector<std::string>{"",
                                                good.substr(0, 20),
                                                good.substr(0, 100),
                                                good.substr(0, good.size() - 1),
                                                good + "x",
                                                std::string(good.size(), '\0')};
  std::vector<std::string> all = damages;
  for (const size_t at : {size_t{0}, size_t{17}, size_t{60}, size_t{300}, good.size() - 1}) {
    all.push_back(good);
    all.back()[at] = static_cast<char>(all.back()[at] ^ 4);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const auto tier = open();
    if (i > 0) {
      ASSERT_TRUE(tier->write(text_record("a", 0)).ok()) << i;
    }
    testing::write_file(file("a", 0), all[i]);
    const Code code = tier->read(text_key("a", 1)).status().code();
    EXPECT_TRUE(code == Code::kCorrupt || code == Code::kUnsupported) << i;  // a flip in the version
    EXPECT_EQ(tier->figures().damaged, 1U) << i;
    EXPECT_FALSE(fs::exists(file("a", 0))) << i;
    expect_gone(*tier, "a", 0);
  }
}

TEST_F(KvTierTest, AnotherRecordUnderTheNameIsAMiss) {
  const auto tier = open();
  ASSERT_TRUE(tier->write(text_record("a", 0)).ok());
  ASSERT_TRUE(tier->write(text_record("b", 0)).ok());
  fs::copy_file(file("b", 0), file("a", 0), fs::copy_options::overwrite_existing);
  EXPECT_EQ(tier->read(text_key("a", 1)).status().code(), Code::kCorrupt);
  expect_there(*tier, "b", 0);
}

TEST_F(KvTierTest, LinksAndStrangeNamesAreNotFollowed) {
  ASSERT_TRUE(open()->write(text_record("a", 0)).ok());
  const std::string outside = folder_.path() + "/outside";
  fs::rename(file("a", 0), outside);
  fs::create_symlink(outside, file("a", 0));
  testing::write_file(root() + "/records/readme", "mine");
  testing::write_file(root() + "/records/" + std::string(64, 'A'), "mine");
  testing::write_file(root() + "/records/" + std::string(64, 'a') + ".part", "left by a crash");
  const auto tier = open();
  EXPECT_EQ(tier->read(text_key("a", 0)).status().code(), Code::kFailedPrecondition);
  expect_gone(*tier, "a", 0);
  EXPECT_TRUE(fs::exists(outside));
  EXPECT_FALSE(fs::is_symlink(fs::symlink_status(file("a", 0))));
  EXPECT_TRUE(fs::exists(root() + "/records/readme"));
  EXPECT_TRUE(fs::exists(root() + "/records/" + std::string(64, 'A')));
  EXPECT_FALSE(fs::exists(root() + "/records/" + std::string(64, 'a') + ".part"));
}

TEST_F(KvTierTest, AnIndexThatIsLostOrDamagedIsMadeAnew) {
  {
    const auto tier = open();
    for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(tier->write(text_record("a", i)).ok());
  }
  const std::string index = root() + "/index.sqlite";
  const std::string good = testing::read_file(index);
  ASSERT_GT(good.size(), 8192U);
  std::vector<std::string> bad = {"", "not a database", good.substr(0, 5000), std::string(good.size(), 'x')};
  std::string header = good;  // the first page is whole, the others are not
  std::fill(header.begin() + 4096, header.end(), '\x7f');
  bad.push_back(header);
  for (size_t i = 0; i < bad.size(); ++i) {
    testing::write_file(index, bad[i]);
    const auto tier = open();
    ASSERT_NE(tier, nullptr) << i;
    for (size_t k = 0; k < 2; ++k) expect_there(*tier, "a", k);
    EXPECT_EQ(tier->figures().index_rebuilt, i > 0) << i;  // an empty file is a new database
  }
  fs::remove(index);
  {
    const auto tier = open();
    for (size_t k = 0; k < 2; ++k) expect_there(*tier, "a", k);
  }
  fs::remove(index);
  fs::create_symlink(folder_.path() + "/elsewhere", index);
  EXPECT_FALSE(KvTier::open(root()).ok());
  EXPECT_FALSE(fs::exists(folder_.path() + "/elsewhere"));
}

TEST_F(KvTierTest, RecordsThatCameOrWentWithoutTheIndexAreFoundOut) {
  ASSERT_TRUE(open()->write(text_record("a", 0)).ok());
  fs::remove(file("a", 0));
  const auto other = text_record("b", 0);
  testing::write_file(file("b", 0), {reinterpret_cast<const char*>(other.data()), other.size()});
  testing::write_file(root() + "/records/" + hex_of(key_of("nothing")), "no record");
  const auto tier = open();
  expect_gone(*tier, "a", 0);
  expect_there(*tier, "b", 0);
  EXPECT_EQ(tier->figures().records, 1U);
  EXPECT_EQ(tier->figures().damaged, 1U);
  fs::remove(file("b", 0));  // while it is open
  EXPECT_EQ(tier->read(text_key("b", 0)).status().code(), Code::kNotFound);
  EXPECT_FALSE(tier->holds(text_key("b", 0)));
  ASSERT_TRUE(tier->write(other).ok());
  expect_there(*tier, "b", 0);
}

TEST_F(KvTierTest, RefuseAndDropRemove) {
  const auto tier = open();
  for (const std::string text : {"a", "b", "c"}) ASSERT_TRUE(tier->write(text_record(text, 0)).ok());
  tier->refuse(text_key("a", 1));
  tier->refuse(text_key("nobody", 1));
  expect_gone(*tier, "a", 0);
  EXPECT_EQ(tier->figures().refused, 1U);
  const std::vector<Digest> names = {text_key("b", 2), key_of("nobody")};
  const auto freed = tier->drop(names);
  ASSERT_TRUE(freed.ok());
  EXPECT_EQ(*freed, kRecordBytes);
  expect_gone(*tier, "b", 0);
  expect_there(*tier, "c", 0);
  EXPECT_EQ(tier->write(std::vector<std::byte>(500)).code(), Code::kInvalidArgument);
}

TEST_F(KvTierTest, AFullDiskMakesItReadOnlyAndSaysSo) {
  ASSERT_TRUE(open()->write(text_record("a", 0)).ok());
  const auto plan = std::make_shared<FaultPlan>();
  KvTierOptions options;
  options.disk_reserve = 1'000'000;
  const auto reopen = [&] {
    return std::move(*KvTier::open(faulty_folder(*posix_folder(root(), true), plan), options));
  };
  const auto expect_read_only = [&](KvTier& tier) {
    EXPECT_FALSE(tier.write(text_record("b", 0)).ok());
    EXPECT_FALSE(tier.figures().read_only.empty());
    EXPECT_EQ(tier.write(text_record("c", 0)).code(), Code::kFailedPrecondition);
    expect_there(tier, "a", 0);
    expect_gone(tier, "b", 0);
    *plan = FaultPlan();
  };
  plan->reported_free = 1'000'000;
  expect_read_only(*reopen());
  plan->disk_bytes = kRecordBytes / 2;
  expect_read_only(*reopen());
  for (bool FaultPlan::*fault : {&FaultPlan::fail_file_sync, &FaultPlan::fail_rename}) {
    (*plan).*fault = true;
    expect_read_only(*reopen());
  }
  const auto tier = reopen();
  ASSERT_TRUE(tier->write(text_record("b", 0)).ok());
  expect_there(*tier, "b", 0);
}

TEST_F(KvTierTest, TwoOwnersAtOnceLoseNothing) {
  const auto work = [&](const std::string& text) {
    const auto tier = open();
    for (size_t i = 0; i < 12; ++i) {
      ASSERT_TRUE(tier->write(text_record(text, i)).ok()) << text << i;
      ASSERT_TRUE(tier->write(text_record("shared", i)).ok()) << i;
      expect_there(*tier, text, i);
      expect_there(*tier, "shared", i);
    }
  };
  std::thread one(work, "a"), two(work, "b");
  one.join();
  two.join();
  const auto tier = open();
  EXPECT_EQ(tier->figures().records, 36U);
  EXPECT_EQ(tier->figures().damaged, 0U);
}

TEST_F(KvTierTest, TwoOwnersUnderASmallQuotaServeNothingWrong) {
  const auto work = [&](const std::string& text) {
    KvTierOptions options;
    options.quota = 5 * kRecordBytes;
    options.disk_reserve = 0;
    auto tier = KvTier::open(root(), options);
    ASSERT_TRUE(tier.ok()) << tier.status().to_string();
    for (size_t i = 0; i < 20; ++i) {
      const std::string name = text + std::to_string(i) + "-";
      ASSERT_TRUE((*tier)->write(text_record(name, 0)).ok()) << name;
      for (size_t k = 0; k <= i; ++k) {
        const std::string old = text + std::to_string(k) + "-";
        const auto got = (*tier)->read(text_key(old, 1));
        if (got.ok()) {
          EXPECT_EQ(*got, text_record(old, 0));
        }
      }
    }
    EXPECT_EQ((*tier)->figures().damaged, 0U);
  };
  std::thread one(work, "a"), two(work, "b");
  one.join();
  two.join();
  EXPECT_LE(open()->figures().bytes, 5 * kRecordBytes);
}

// ---- death and faults at every step ----

const std::vector<std::pair<std::string, size_t>> kStory = {{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}, {"c", 0}};
constexpr uint64_t kStoryRecords = 3;  // within the quota: the story evicts

/// Opens, writes the story, reads and refuses, with steps counted into `plan`. Every error is allowed.
void tell_story(const std::string& root, const std::shared_ptr<FaultPlan>& plan) {
  const FaultVfs vfs(*plan);
  KvTierOptions options;
  options.quota = kStoryRecords * kRecordBytes;
  options.disk_reserve = 0;
  options.vfs = FaultVfs::name();
  const auto tier = KvTier::open(faulty_folder(*posix_folder(root, true), plan), options);
  if (!tier.ok()) return;
  for (const auto& [text, number] : kStory) {
    (void)(*tier)->write(text_record(text, number)).ok();
    const auto got = (*tier)->read(text_key(text, 3 * number));
    if (got.ok()) {
      EXPECT_EQ(*got, text_record(text, number));
    }
  }
  (*tier)->refuse(text_key("c", 0));
}

/// A tier after a story that ended anywhere: it opens, holds nothing wrong, and works.
void expect_sound(const std::string& root, uint64_t step) {
  KvTierOptions options;
  options.quota = kStoryRecords * kRecordBytes;
  options.disk_reserve = 0;
  auto opened = KvTier::open(root, options);
  ASSERT_TRUE(opened.ok()) << "step " << step << ": " << opened.status().to_string();
  KvTier& tier = **opened;
  EXPECT_LE(tier.figures().bytes, options.quota) << "step " << step;
  for (const auto& [text, number] : kStory) {
    const bool held = tier.holds(text_key(text, 3 * number));
    const auto got = tier.read(text_key(text, 3 * number));
    EXPECT_EQ(got.ok(), held) << "step " << step << ", " << text << number;
    if (!got.ok()) continue;
    EXPECT_EQ(*got, text_record(text, number)) << "step " << step;
    if (number > 0) {
      EXPECT_TRUE(tier.holds(text_key(text, 3 * number - 1))) << "step " << step;
    }
  }
  ASSERT_TRUE(tier.write(text_record("new", 0)).ok()) << "step " << step;
  const auto got = tier.read(text_key("new", 2));
  ASSERT_TRUE(got.ok()) << "step " << step;
  EXPECT_EQ(*got, text_record("new", 0));
  EXPECT_EQ(tier.figures().damaged, 0U) << "step " << step;
}

uint64_t steps_of_story(const std::string& root) {
  const auto plan = std::make_shared<FaultPlan>();
  tell_story(root, plan);
  return plan->steps;
}

TEST_F(KvTierTest, KilledAtAnyStepItOpensAndServesNothingWrong) {
  ::testing::FLAGS_gtest_death_test_style = "fast";
  const uint64_t steps = steps_of_story(folder_.path() + "/whole");
  ASSERT_GT(steps, 60U);
  for (uint64_t n = 0; n < steps; ++n) {
    const std::string root = folder_.path() + "/killed" + std::to_string(n);
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_from = n;
    plan->on_failure = [] { std::raise(SIGKILL); };
    ASSERT_EXIT(tell_story(root, plan), ::testing::KilledBySignal(SIGKILL), "") << "step " << n;
    expect_sound(root, n);
    fs::remove_all(root);
  }
}

TEST_F(KvTierTest, ADiskThatGoesAwayAtAnyStepLosesNothingOld) {
  const uint64_t steps = steps_of_story(folder_.path() + "/whole");
  for (uint64_t n = 0; n < steps; ++n) {
    const std::string root = folder_.path() + "/failed" + std::to_string(n);
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_from = n;
    tell_story(root, plan);
    expect_sound(root, n);
    fs::remove_all(root);
  }
}

}  // namespace
}  // namespace isthmus
