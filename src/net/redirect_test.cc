// Where redirects may lead, and who sees a credential (reliability rows: requests forged through a redirect,
// a token that is sent to another host).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/download.h"
#include "net/testing/server_for_test.h"

namespace isthmus {
namespace {

using std::chrono::milliseconds;
using testing::Connection;
using ::testing::HasSubstr;
using testing::Request;
using testing::serve_file;
using testing::TestServer;

class StringSink : public DownloadSink {
 public:
  Status begin(const DownloadStart& start) override {
    bytes.resize(static_cast<size_t>(start.offset));
    last = start;
    return ok_status();
  }
  Status write(std::span<const std::byte> piece) override {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return ok_status();
  }
  std::string bytes;
  DownloadStart last;
};

class RedirectTest : public ::testing::Test {
 protected:
  RedirectTest() {
    options_.http.connect_timeout = milliseconds(2000);
    options_.max_attempts = 1;
    options_.sleep = [](milliseconds) {};
  }
  Status fetch(const std::string& url) {
    request_.url = url;
    return download(request_, sink_, options_);
  }
  DownloadRequest request_;
  DownloadOptions options_;
  StringSink sink_;
};

TEST_F(RedirectTest, HubAndStorageBehindIt) {
  const std::string digest(64, 'a');
  TestServer storage([](const Request& in, const Connection& out) {
    // The storage's own x-linked-etag must not count.
    if (in.target.starts_with("/blob"))
      return serve_file(in, out, "GGUF", "\"s1\"\r\nX-Linked-Etag: \"" + std::string(64, 'b') + "\"");
    out.reply(404, "", "");
  });
  TestServer hub([&](const Request&, const Connection& out) {
    out.redirect(storage.url("/blob?sig=secret"), "X-Linked-Etag: \"" + digest + "\"\r\n");
  });
  request_.credential = Credential{parse_url(hub.origin())->origin, "hf_secret"};
  ASSERT_TRUE(fetch(hub.url("/org/repo/resolve/main/f.gguf")).ok());
  EXPECT_EQ(sink_.bytes, "GGUF");
  EXPECT_EQ(sink_.last.linked_sha256, digest);
  EXPECT_EQ(hub.requests().at(0).header("authorization"), "Bearer hf_secret");
  EXPECT_EQ(storage.requests().at(0).header("authorization"), "") << "another port is another origin";
}

TEST_F(RedirectTest, CredentialStaysOnItsOriginOnly) {
  TestServer hub([](const Request& in, const Connection& out) {
    if (in.target == "/a") return out.redirect("/b");
    serve_file(in, out, "x", "\"1\"");
  });
  request_.credential = Credential{parse_url(hub.origin())->origin, "t"};
  ASSERT_TRUE(fetch(hub.url("/a")).ok());
  EXPECT_EQ(hub.requests().at(1).header("authorization"), "Bearer t");
  // The same machine by another name is another origin.
  ASSERT_TRUE(fetch("http://localhost:" + std::to_string(hub.port()) + "/b").ok());
  EXPECT_EQ(hub.requests().at(2).header("authorization"), "");
}

TEST_F(RedirectTest, AtMostTen) {
  TestServer server([](const Request& in, const Connection& out) {
    const int left = std::stoi(in.target.substr(1));
    if (left > 0) return out.redirect("/" + std::to_string(left - 1));
    serve_file(in, out, "end", "\"1\"");
  });
  EXPECT_TRUE(fetch(server.url("/10")).ok());
  const Status status = fetch(server.url("/11"));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("10 redirects"));
}

TEST_F(RedirectTest, InnerAddressesAndOtherSchemesAreRefused) {
  std::string location;
  TestServer server([&](const Request&, const Connection& out) { out.redirect(location); });
  for (const char* target : {"http://169.254.169.254/latest/meta-data/",
                             "https://169.254.169.254/",
                             "https://2852039166/",
                             "https://0xa9fea9fe/",
                             "https://[::ffff:169.254.169.254]/",
                             "https://[fe80::1]/",
                             "https://0.0.0.0/",
                             "https://[::]/",
                             "https://224.0.0.1/",
                             "http://10.0.0.1/",
                             "http://example.com/",
                             "file:///etc/passwd",
                             "ftp://example.com/f",
                             "gopher://example.com/",
                             "dict://127.0.0.1:11211/",
                             "data:text/plain,x",
                             "https://user:pw@example.com/",
                             "https://",
                             "//",
                             "https://a b/"}) {
    location = target;
    const Status status = fetch(server.url("/f"));
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << target << ": " << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("refused")) << target;
  }
  EXPECT_TRUE(sink_.bytes.empty());
}

TEST_F(RedirectTest, NamesThatResolveInwardsAreRefusedAtTheSocket) {
  TestServer server(
      [&](const Request&, const Connection& out) { out.redirect("https://metadata.example:1/"); });
  options_.http.resolve = {"metadata.example:1:169.254.169.254"};
  const Status status = fetch(server.url("/f"));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("inside this machine or network"));
}

TEST_F(RedirectTest, WithoutTargetIsCorrupt) {
  TestServer server([](const Request&, const Connection& out) { out.reply(302, "", ""); });
  EXPECT_EQ(fetch(server.url("/f")).code(), Code::kCorrupt);
}

TEST_F(RedirectTest, PlainHttpIsForThisMachineOnly) {
  EXPECT_EQ(fetch("http://example.com/f").code(), Code::kInvalidArgument);
  EXPECT_EQ(fetch("http://10.0.0.1/f").code(), Code::kInvalidArgument);
  EXPECT_EQ(fetch("ftp://127.0.0.1/f").code(), Code::kInvalidArgument);
}

TEST_F(RedirectTest, EndlessHeadersAndErrorPagesAreCut) {
  TestServer server([](const Request& in, const Connection& out) {
    if (in.target == "/page") return out.reply(404, "", std::string(1 << 20, 'x'));
    out.send("HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 20'000; ++i)
      out.send("X-H" + std::to_string(i) + ": " + std::string(60, 'y') + "\r\n");
    out.send("\r\n");
  });
  EXPECT_FALSE(fetch(server.url("/headers")).ok());
  EXPECT_EQ(fetch(server.url("/page")).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace isthmus
