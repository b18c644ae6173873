#include "net/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "net/testing/server_for_test.h"

namespace isthmus {
namespace {

using std::chrono::milliseconds;
using testing::Connection;
using ::testing::HasSubstr;
using testing::Request;
using testing::serve_file;
using testing::TestServer;

/// Keeps the file in memory and checks that it is told to go back, never forward.
class MemorySink : public DownloadSink {
 public:
  Status begin(const DownloadStart& start) override {
    if (start.offset > bytes.size()) return internal_error("a hole in the file");
    bytes.resize(static_cast<size_t>(start.offset));
    starts.push_back(start);
    return ok_status();
  }
  Status write(std::span<const std::byte> piece) override {
    if (room < piece.size()) return resource_exhausted("the test disk is full");
    room -= piece.size();
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return ok_status();
  }
  std::string bytes;
  std::vector<DownloadStart> starts;
  size_t room = SIZE_MAX;
};

std::string content(size_t size, char salt = 0) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i)
    out[i] = static_cast<char>((i * 131 + i / 251) ^ static_cast<size_t>(salt));
  return out;
}

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() {
    options_.http.stall_timeout = milliseconds(3000);
    options_.sleep = [this](milliseconds wait) { waits_.push_back(wait); };
  }
  Status fetch(const TestServer& server, const std::string& target) {
    request_.url = server.url(target);
    return download(request_, sink_, options_);
  }
  DownloadRequest request_;
  DownloadOptions options_;
  MemorySink sink_;
  std::vector<milliseconds> waits_;
  const std::string file_ = content(300'000);
};

TEST_F(DownloadTest, PlainFile) {
  TestServer server([&](const Request& in, const Connection& out) { serve_file(in, out, file_, "\"v1\""); });
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
  EXPECT_EQ(sink_.starts.at(0).total, file_.size());
  EXPECT_EQ(sink_.starts.at(0).validator, "\"v1\"");
  EXPECT_EQ(server.requests().at(0).header("accept-encoding"), "identity");
  EXPECT_EQ(server.requests().at(0).header("range"), "");
}

TEST_F(DownloadTest, ResumesWithRangeAndIfRange) {
  TestServer server([&](const Request& in, const Connection& out) { serve_file(in, out, file_, "\"v1\""); });
  sink_.bytes = file_.substr(0, 1000);
  request_.offset = 1000;
  request_.validator = "\"v1\"";
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
  EXPECT_EQ(server.requests().at(0).header("range"), "bytes=1000-");
  EXPECT_EQ(server.requests().at(0).header("if-range"), "\"v1\"");
  EXPECT_EQ(sink_.starts.at(0).offset, 1000U);
}

TEST_F(DownloadTest, ChangedFileStartsOver) {
  TestServer server([&](const Request& in, const Connection& out) { serve_file(in, out, file_, "\"v2\""); });
  sink_.bytes = content(1000, 7);
  request_.offset = 1000;
  request_.validator = "\"v1\"";
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
}

TEST_F(DownloadTest, WithoutValidatorNothingIsTrustedUnlessTheDigestIsKnown) {
  TestServer server([&](const Request& in, const Connection& out) { serve_file(in, out, file_, "\"v1\""); });
  sink_.bytes = file_.substr(0, 1000);
  request_.offset = 1000;
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(server.requests().at(0).header("range"), "");
  request_.resume_unvalidated = true;
  sink_.bytes = file_.substr(0, 1000);
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(server.requests().at(1).header("range"), "bytes=1000-");
  EXPECT_EQ(sink_.bytes, file_);
}

TEST_F(DownloadTest, CutConnectionGoesOn) {
  std::atomic<int> calls{0};
  TestServer server([&](const Request& in, const Connection& out) {
    if (calls++ > 0) return serve_file(in, out, file_, "\"v1\"");
    out.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: " + std::to_string(file_.size()) +
             "\r\n\r\n");
    out.send(std::string_view(file_).substr(0, 120'000));
  });
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
  EXPECT_EQ(server.requests().at(1).header("range"), "bytes=120000-");
  EXPECT_EQ(waits_.size(), 1U);
}

TEST_F(DownloadTest, TagThatChangesInTheMiddleStartsOver) {
  const std::string newer = content(250'000, 3);
  std::atomic<int> calls{0};
  TestServer server([&](const Request& in, const Connection& out) {
    if (calls++ > 0) return serve_file(in, out, newer, "\"v2\"");
    out.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: " + std::to_string(file_.size()) +
             "\r\n\r\n");
    out.send(std::string_view(file_).substr(0, 120'000));
  });
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, newer);
}

TEST_F(DownloadTest, ServerThatIgnoresIfRangeIsCaughtByItsTag) {
  TestServer server([&](const Request& in, const Connection& out) {
    Request lax = in;
    lax.headers.erase("if-range");
    serve_file(lax, out, file_, "\"v2\"");
  });
  sink_.bytes = content(1000, 7);
  request_.offset = 1000;
  request_.validator = "\"v1\"";
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST_F(DownloadTest, FileThatNeverStopsChangingEnds) {
  std::atomic<int> calls{0};
  TestServer server([&](const Request&, const Connection& out) {
    const std::string etag = "\"v" + std::to_string(calls++) + "\"";
    const std::string range =
        calls % 2 == 0 ? "206 P\r\nContent-Range: bytes 120000-299999/300000" : "200 OK";
    out.send("HTTP/1.1 " + range + "\r\nETag: " + etag + "\r\nContent-Length: 300000\r\n\r\n");
    out.send(std::string_view(file_).substr(0, 120'000));
  });
  EXPECT_EQ(fetch(server, "/f").code(), Code::kUnavailable);
  EXPECT_LE(server.requests().size(), 12U);
}

TEST_F(DownloadTest, WholeFileAlreadyThere) {
  TestServer server([&](const Request& in, const Connection& out) { serve_file(in, out, file_, "\"v1\""); });
  sink_.bytes = file_;
  request_.offset = file_.size();
  request_.validator = "\"v1\"";
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
  // More than the server has: those bytes are of another file.
  sink_.bytes = file_ + "x";
  request_.offset = file_.size() + 1;
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
}

TEST_F(DownloadTest, RefusalsSayWhatIsNeeded) {
  TestServer server([&](const Request& in, const Connection& out) {
    const int status = std::stoi(in.target.substr(1));
    out.reply(status, "X-Error-Message: Access to model x is restricted\r\n", "<html>");
  });
  request_.login_hint = "set THE_TOKEN";
  const Status s401 = fetch(server, "/401");
  EXPECT_EQ(s401.code(), Code::kFailedPrecondition);
  EXPECT_THAT(s401.message(), HasSubstr("set THE_TOKEN"));
  EXPECT_THAT(s401.message(), HasSubstr("Access to model x is restricted"));
  EXPECT_THAT(fetch(server, "/403").message(), HasSubstr("access is denied"));
  EXPECT_EQ(fetch(server, "/404").code(), Code::kNotFound);
  EXPECT_EQ(fetch(server, "/410").code(), Code::kNotFound);
  EXPECT_EQ(fetch(server, "/418").code(), Code::kFailedPrecondition);
  EXPECT_EQ(server.requests().size(), 5U) << "none of these is tried again";
  EXPECT_TRUE(sink_.starts.empty());
}

TEST_F(DownloadTest, RetryAfterIsObeyed) {
  std::atomic<int> calls{0};
  TestServer server([&](const Request& in, const Connection& out) {
    if (calls++ == 0) return out.reply(429, "Retry-After: 7\r\n", "slow down");
    serve_file(in, out, file_, "\"v1\"");
  });
  ASSERT_TRUE(fetch(server, "/f").ok());
  ASSERT_EQ(waits_.size(), 1U);
  EXPECT_EQ(waits_[0], milliseconds(7000));
}

TEST_F(DownloadTest, TooLongRetryAfterEndsAndSaysSo) {
  TestServer server(
      [&](const Request&, const Connection& out) { out.reply(429, "Retry-After: 3600\r\n", ""); });
  const Status status = fetch(server, "/f");
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("3600 s"));
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST_F(DownloadTest, ServerErrorsAreTriedAgainAndThenGivenUp) {
  TestServer server([&](const Request&, const Connection& out) { out.reply(503, "", "busy"); });
  options_.max_attempts = 4;
  EXPECT_EQ(fetch(server, "/f").code(), Code::kUnavailable);
  EXPECT_EQ(server.requests().size(), 4U);
  ASSERT_EQ(waits_.size(), 3U);
  for (size_t i = 0; i < waits_.size(); ++i) {
    const auto full = options_.first_wait * (1 << i);
    EXPECT_GE(waits_[i], full / 2);
    EXPECT_LE(waits_[i], full);
  }
}

TEST_F(DownloadTest, StallIsNoticedAndResumed) {
  std::atomic<int> calls{0};
  TestServer server([&](const Request& in, const Connection& out) {
    if (calls++ > 0) return serve_file(in, out, file_, "\"v1\"");
    out.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 300000\r\n\r\n");
    out.send(std::string_view(file_).substr(0, 50'000));
    out.stall();
  });
  options_.http.stall_timeout = milliseconds(200);
  ASSERT_TRUE(fetch(server, "/f").ok());
  EXPECT_EQ(sink_.bytes, file_);
  EXPECT_EQ(server.requests().at(1).header("range"), "bytes=50000-");
}

TEST_F(DownloadTest, CancelAndDeadlineEndQuickly) {
  TestServer server([&](const Request&, const Connection& out) { out.stall(); });
  CancelSource source;
  options_.http.stop.token = source.token();
  auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(milliseconds(100));
    source.cancel();
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fetch(server, "/f").code(), Code::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1500));
  options_.http.stop = StopPolicy{};
  options_.http.stop.deadline = std::chrono::steady_clock::now() + milliseconds(100);
  EXPECT_EQ(fetch(server, "/f").code(), Code::kDeadlineExceeded);
}

TEST_F(DownloadTest, WrongLengthsAreErrors) {
  TestServer server([&](const Request& in, const Connection& out) {
    if (in.target == "/chunked") {
      out.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
      for (int i = 0; i < 100; ++i) out.send("3E8\r\n" + std::string(1000, 'x') + "\r\n");
      return out.send("0\r\n\r\n");
    }
    serve_file(in, out, file_, "\"v1\"");
  });
  request_.size = file_.size() - 1;
  const Status status = fetch(server, "/f");
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("300000"));
  request_.size = 5000;
  EXPECT_EQ(fetch(server, "/chunked").code(), Code::kCorrupt);
  EXPECT_LE(sink_.bytes.size(), 5000U);
  request_.size = 200'000;
  EXPECT_EQ(fetch(server, "/chunked").code(), Code::kCorrupt) << "shorter than it must be";
  request_.size.reset();
  request_.max_bytes = 1000;
  EXPECT_EQ(fetch(server, "/f").code(), Code::kResourceExhausted);
}

TEST_F(DownloadTest, CompressedBodiesAreRefused) {
  TestServer server([&](const Request&, const Connection& out) {
    out.reply(200, "Content-Encoding: gzip\r\n", "\x1f\x8b bomb");
  });
  EXPECT_EQ(fetch(server, "/f").code(), Code::kUnsupported);
  EXPECT_TRUE(sink_.bytes.empty());
}

TEST_F(DownloadTest, FullDiskEndsAtOnceWithItsOwnError) {
  TestServer server([&](const Request& in, const Connection& out) { serve_file(in, out, file_, "\"v1\""); });
  sink_.room = 100'000;
  const Status status = fetch(server, "/f");
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the test disk is full"));
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(Backoff, GrowsWithJitterAndIsCapped) {
  DownloadOptions options;
  Rng rng(3);
  for (int failures = 1; failures < 60; ++failures) {
    const milliseconds wait = backoff(failures, options, rng);
    EXPECT_GE(wait, options.first_wait / 2);
    EXPECT_LE(wait, options.max_wait);
    if (failures > 10) {
      EXPECT_GE(wait, options.max_wait / 2);
    }
  }
}

}  // namespace
}  // namespace isthmus
