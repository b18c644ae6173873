// Session files: what is written comes back, what is damaged is refused whole, and a process that dies leaves
// the text before or the text after.
#include "store/session_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "os/paths_faulty_folder.h"
#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

SessionText sample(const std::string& name, size_t tokens = 70) {
  SessionText out;
  out.name = name;
  out.model = std::string(64, 'a');
  out.kv = std::string(64, 'b');
  out.label = "tiny";
  out.created_ns = 1'700'000'000'000'000'000;
  out.used_ns = out.created_ns + 1;
  for (size_t i = 0; i < tokens; ++i) out.tokens.push_back(static_cast<int32_t>(i));
  out.chunks.assign((tokens + 31) / 32, {8, 2});
  out.messages = R"([{"role":"user","content":"h\u00e9llo"}])";
  out.rendered = "<|user|>";
  out.rest = {5, 6};
  // As they come back.
  return *parse_session(write_session(out));
}

TEST(SessionFilesTest, TextsComeBack) {
  const TemporaryFolder folder;
  const auto files = SessionFiles::open(folder.path() + "/sessions");
  ASSERT_TRUE(files.ok());
  for (const size_t tokens : {0U, 1U, 32U, 70U}) {
    const SessionText text = sample("a", tokens);
    ASSERT_TRUE((*files)->save(text).ok());
    const auto back = (*files)->load("a");
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, text);
  }
  ASSERT_TRUE((*files)->save(sample("b.1")).ok());
  EXPECT_THAT(*(*files)->names(), ElementsAre("a", "b.1"));
  ASSERT_TRUE((*files)->remove("a").ok());
  ASSERT_TRUE((*files)->remove("a").ok());
  EXPECT_EQ((*files)->load("a").status().code(), Code::kNotFound);
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(folder.path() + "/sessions").permissions(), perms::owner_all);
  for (const char* name : {"", "../a", "a/b", "-a"}) {
    EXPECT_EQ((*files)->load(name).status().code(), Code::kInvalidArgument) << name;
  }
}

TEST(SessionFilesTest, AFileOfAnotherNameIsRefused) {
  const TemporaryFolder folder;
  const auto files = SessionFiles::open(folder.path());
  ASSERT_TRUE((*files)->save(sample("a")).ok());
  std::filesystem::copy(folder.path() + "/a.session", folder.path() + "/b.session");
  EXPECT_EQ((*files)->load("b").status().code(), Code::kCorrupt);
  std::filesystem::create_symlink(folder.path() + "/a.session", folder.path() + "/c.session");
  EXPECT_EQ((*files)->load("c").status().code(), Code::kFailedPrecondition);
}

TEST(SessionFilesTest, WhatIsWrongIsNamed) {
  const std::string good = write_session(sample("a"));
  const auto refused = [&](const std::string& from, const std::string& to, Code code,
                           const std::string& says) {
    std::string text = good;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto parsed = parse_session(text);
    ASSERT_FALSE(parsed.ok()) << to;
    EXPECT_EQ(parsed.status().code(), code);
    EXPECT_THAT(parsed.status().message(), HasSubstr(says));
  };
  refused(R"("isthmus_session":1)", R"("isthmus_session":2)", Code::kUnsupported, "version 2");
  refused(R"("isthmus_session":1)", R"("isthmus_session":"1")", Code::kCorrupt, "isthmus_session");
  refused(R"("name":"a")", R"("name":"../a")", Code::kCorrupt, "name");
  refused("aaaa", "aaxa", Code::kCorrupt, "names no model");
  refused("bbbb", "bbxb", Code::kCorrupt, "names no KV");
  refused("[0,1,2", "[-1,1,2", Code::kCorrupt, "token");
  refused("[0,1,2", "[0.5,1,2", Code::kCorrupt, "token");
  refused("[0,1,2", "[4294967296,1,2", Code::kCorrupt, "token");
  refused("[0,1,2", "[0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,2", Code::kCorrupt,
          "chunks for");
  refused("[8,2]", "[3,2]", Code::kCorrupt, "chunk");
  refused("[8,2]", "[8,256]", Code::kCorrupt, "chunk");
  refused("[8,2]", "[8]", Code::kCorrupt, "chunk");
  refused(R"("role")", R"("roll")", Code::kCorrupt, "messages");
  refused(R"("created_ns":1)", R"("created_ns":9)", Code::kCorrupt, "created_ns");
  refused(R"("rest":[5)", R"("rest":["5")", Code::kCorrupt, "token");
  for (size_t cut = 0; cut + 2 < good.size(); cut += 7) {
    EXPECT_FALSE(parse_session(std::string_view(good).substr(0, cut)).ok());
  }
  EXPECT_FALSE(parse_session(std::string(100'000, '[')).ok());
}

/// At each step of a save that can fail, the file holds the text before or the text after, and a save that
/// failed says so.
TEST(SessionFilesTest, AnyStepOfASaveMayFail) {
  for (uint64_t step = 0;; ++step) {
    const TemporaryFolder folder;
    const auto real = *posix_folder(folder.path(), true);
    ASSERT_TRUE(SessionFiles(real).save(sample("a", 40)).ok());
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_from = step;
    SessionFiles faulty(faulty_folder(real, plan));
    const Status saved = faulty.save(sample("a", 70));
    const auto back = SessionFiles(real).load("a");
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_TRUE(back->tokens.size() == 40 || back->tokens.size() == 70);
    if (saved.ok()) {
      EXPECT_EQ(back->tokens.size(), 70U);
      EXPECT_GT(step, 3U);
      return;
    }
  }
}

}  // namespace
}  // namespace isthmus
