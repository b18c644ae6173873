// Pulls from a server that behaves like the hub.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "net/testing/server_for_test.h"
#include "store/fetch.h"
#include "store/pull.h"
#include "store/testing/store_fixture.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;
using testing::Connection;
using ::testing::HasSubstr;
using testing::model_bytes;
using testing::read_file;
using testing::Request;
using testing::serve_file;
using testing::TemporaryFolder;
using testing::TestServer;
using testing::write_file;

class WebPullTest : public ::testing::Test {
 protected:
  WebPullTest() : store_(*ModelStore::open(folder_.path() + "/models")), catalogue_(*Catalogue::built_in()) {
    options_.env = [this](const std::string& name) -> std::optional<std::string> {
      const auto it = env_.find(name);
      return it == env_.end() ? std::nullopt : std::optional(it->second);
    };
    options_.download.sleep = [](std::chrono::milliseconds) {};
    env_["HOME"] = folder_.path();
  }
  Result<PullOutcome> pull(const std::string& reference) {
    return pull_model(store_, catalogue_, reference, options_);
  }

  TemporaryFolder folder_;
  ModelStore store_;
  Catalogue catalogue_;
  PullOptions options_;
  std::map<std::string, std::string> env_;
  const std::string content_ = model_bytes(300'000);
};

TEST_F(WebPullTest, HubFileWithTokenRevisionAndLinkedDigest) {
  TestServer storage(
      [&](const Request& in, const Connection& out) { serve_file(in, out, content_, "\"s\""); });
  TestServer hub([&](const Request& in, const Connection& out) {
    if (in.header("authorization") != "Bearer hf_abc") return out.reply(401, "X-Error-Message: no\r\n", "");
    out.redirect(storage.url("/x?sig=1"), "X-Linked-Etag: \"" + sha256_of(content_) + "\"\r\n");
  });
  env_["HF_ENDPOINT"] = hub.origin() + "/";
  const auto refused = pull("hf:o/r/sub/M.gguf@refs/pr/1");
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("HF_TOKEN"));
  fs::create_directories(folder_.path() + "/.cache/huggingface");
  write_file(folder_.path() + "/.cache/huggingface/token", "hf_abc\n");
  const auto outcome = pull("hf:o/r/sub/M.gguf@refs/pr/1");
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(read_file(outcome->path), content_);
  EXPECT_EQ(outcome->manifest.licence.url, hub.origin() + "/o/r");
  EXPECT_EQ(hub.requests().back().target, "/o/r/resolve/refs%2Fpr%2F1/sub/M.gguf");
  EXPECT_EQ(storage.requests().back().header("authorization"), "");
  EXPECT_EQ(resolve_model(store_, catalogue_, "hf:o/r/sub/M.gguf@refs/pr/1")->path, outcome->path);
}

TEST_F(WebPullTest, DigestOfTheHubIsChecked) {
  TestServer hub([&](const Request& in, const Connection& out) {
    if (in.target != "/x") return out.redirect("/x", "X-Linked-Etag: \"" + std::string(64, 'a') + "\"\r\n");
    serve_file(in, out, content_, "\"s\"");
  });
  env_["HF_ENDPOINT"] = hub.origin();
  const auto outcome = pull("hf:o/r/f.gguf");
  EXPECT_EQ(outcome.status().code(), Code::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr(std::string(64, 'a')));
  EXPECT_TRUE(store_.list()->empty());
}

TEST_F(WebPullTest, InterruptedPullGoesOnInTheNextOne) {
  std::atomic<bool> whole{false};
  TestServer server([&](const Request& in, const Connection& out) {
    if (whole) return serve_file(in, out, content_, "\"v\"");
    out.send("HTTP/1.1 200 OK\r\nETag: \"v\"\r\nContent-Length: 300000\r\n\r\n");
    out.send(std::string_view(content_).substr(0, 100'000));
  });
  options_.download.max_attempts = 1;
  EXPECT_EQ(pull(server.url("/m.gguf")).status().code(), Code::kUnavailable);
  EXPECT_TRUE(store_.list()->empty());
  whole = true;
  const auto outcome = pull(server.url("/m.gguf"));
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(read_file(outcome->path), content_);
  EXPECT_EQ(server.requests().back().header("range"), "bytes=100000-");
  EXPECT_EQ(outcome->manifest.sha256, sha256_of(content_));
}

TEST_F(WebPullTest, ChangedOnTheServerBetweenTwoPulls) {
  const std::string newer = model_bytes(280'000, 5);
  std::atomic<bool> changed{false};
  TestServer server([&](const Request& in, const Connection& out) {
    if (changed) return serve_file(in, out, newer, "\"w\"");
    out.send("HTTP/1.1 200 OK\r\nETag: \"v\"\r\nContent-Length: 300000\r\n\r\n");
    out.send(std::string_view(content_).substr(0, 100'000));
  });
  options_.download.max_attempts = 1;
  EXPECT_FALSE(pull(server.url("/m.gguf")).ok());
  changed = true;
  const auto outcome = pull(server.url("/m.gguf"));
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(read_file(outcome->path), newer);
}

TEST_F(WebPullTest, PartsOfAWebSourceAreJoined) {
  TestServer server([&](const Request& in, const Connection& out) {
    const size_t part = static_cast<size_t>(in.target.back() - '0');
    serve_file(in, out, std::string_view(content_).substr(part * 100'000, 100'000), "\"v\"");
  });
  options_.name = "joined";
  const auto outcome = pull(server.url("/part{0..2}"));
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(read_file(outcome->path), content_);
}

TEST_F(WebPullTest, DiskThatIsTooSmallIsSeenAtTheFirstHeaders) {
  TestServer server([&](const Request&, const Connection& out) {
    out.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000\r\n\r\nGGUF");
  });
  options_.max_bytes = UINT64_MAX;
  const auto outcome = pull(server.url("/m.gguf"));
  EXPECT_EQ(outcome.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST_F(WebPullTest, ErrorPageIsNoModel) {
  TestServer server([&](const Request&, const Connection& out) { out.reply(200, "", "<html>login</html>"); });
  EXPECT_EQ(pull(server.url("/m.gguf")).status().code(), Code::kCorrupt);
}

TEST_F(WebPullTest, TokensWithLineBreaksAreRefused) {
  env_["HF_TOKEN"] = "abc\r\nX-Evil: 1";
  EXPECT_EQ(hub_token(options_.env).status().code(), Code::kInvalidArgument);
  env_["HF_TOKEN"] = "two words";
  EXPECT_EQ(hub_token(options_.env).status().code(), Code::kInvalidArgument);
  env_["HF_TOKEN"] = "good\n";
  EXPECT_EQ(*hub_token(options_.env), "good");
  env_.erase("HF_TOKEN");
  EXPECT_EQ(*hub_token(options_.env), "");
  env_["HF_HOME"] = folder_.path();
  write_file(folder_.path() + "/token", "from-home\n");
  EXPECT_EQ(*hub_token(options_.env), "from-home");
  env_["HF_ENDPOINT"] = "ftp://x";
  EXPECT_EQ(hub_url({"o/r", "f", "main"}, options_.env).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace isthmus
