#include "net/url.h"

#include <gtest/gtest.h>

#include "net/address.h"

namespace isthmus {
namespace {

TEST(Url, TakesApart) {
  const auto url = parse_url("HTTPS://Example.COM:8443/a/b?x=1#frag");
  ASSERT_TRUE(url.ok()) << url.status().to_string();
  EXPECT_EQ(url->origin, (Origin{"https", "example.com", 8443}));
  EXPECT_EQ(url->target, "/a/b?x=1");
  EXPECT_EQ(url->text(), "https://example.com:8443/a/b?x=1");
  EXPECT_EQ(url->public_text(), "https://example.com:8443/a/b");
  EXPECT_EQ(parse_url("https://example.com")->origin.port, 443);
  EXPECT_EQ(parse_url("https://example.com")->text(), "https://example.com/");
  EXPECT_EQ(parse_url("http://[::1]:80/")->origin.host, "::1");
  EXPECT_EQ(parse_url("http://[::1]/x")->text(), "http://[::1]/x");
}

TEST(Url, RefusesWhatIsNoPlainWebAddress) {
  for (const char* bad :
       {"", "example.com", "/path", "ftp://h/f", "file:///etc/passwd", "https://", "https://user@h/",
        "https://user:pw@h/", "https://h:0/", "https://h:70000/", "https://h/a b", "https://h/\n",
        "javascript:alert(1)", "https://[fe80::1%25eth0]/"}) {
    EXPECT_EQ(parse_url(bad).status().code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(parse_url("https://h/" + std::string(20000, 'a')).ok());
}

TEST(Url, NumbersInDisguiseBecomeAddresses) {
  for (const char* text : {"http://2130706433/", "http://0x7f.1/", "http://017700000001/", "http://127.1/"}) {
    const auto url = parse_url(text);
    ASSERT_TRUE(url.ok()) << text;
    EXPECT_EQ(classify_host(url->origin.host), AddressKind::kLoopback) << text;
  }
}

TEST(Url, ResolvesLikeABrowser) {
  const Url base = *parse_url("https://h/a/b?q");
  EXPECT_EQ(resolve_url(base, "/x")->text(), "https://h/x");
  EXPECT_EQ(resolve_url(base, "c")->text(), "https://h/a/c");
  EXPECT_EQ(resolve_url(base, "../../../etc")->text(), "https://h/etc");
  EXPECT_EQ(resolve_url(base, "//other:1/y")->text(), "https://other:1/y");
  EXPECT_FALSE(resolve_url(base, "file:///etc/passwd").ok());
  EXPECT_FALSE(resolve_url(base, "gopher://h/").ok());
}

TEST(Url, PercentEncodes) {
  EXPECT_EQ(percent_encode("a/b c%\xc3\xa9?", true), "a/b%20c%25%C3%A9%3F");
  EXPECT_EQ(percent_encode("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(Address, Kinds) {
  const std::vector<std::pair<const char*, AddressKind>> table = {
      {"8.8.8.8", AddressKind::kPublic},
      {"172.15.0.1", AddressKind::kPublic},
      {"10.1.2.3", AddressKind::kPrivate},
      {"172.16.0.1", AddressKind::kPrivate},
      {"172.31.255.255", AddressKind::kPrivate},
      {"192.168.1.1", AddressKind::kPrivate},
      {"100.64.0.1", AddressKind::kPrivate},
      {"fd00::1", AddressKind::kPrivate},
      {"127.0.0.1", AddressKind::kLoopback},
      {"127.255.0.9", AddressKind::kLoopback},
      {"::1", AddressKind::kLoopback},
      {"localhost", AddressKind::kLoopback},
      {"a.localhost", AddressKind::kLoopback},
      {"localhost.", AddressKind::kLoopback},
      {"::ffff:127.0.0.1", AddressKind::kLoopback},
      {"64:ff9b::7f00:1", AddressKind::kLoopback},
      {"2002:7f00:1::", AddressKind::kLoopback},
      {"169.254.169.254", AddressKind::kForbidden},
      {"::ffff:169.254.169.254", AddressKind::kForbidden},
      {"fe80::1", AddressKind::kForbidden},
      {"0.0.0.0", AddressKind::kForbidden},
      {"::", AddressKind::kForbidden},
      {"224.0.0.1", AddressKind::kForbidden},
      {"255.255.255.255", AddressKind::kForbidden},
      {"ff02::1", AddressKind::kForbidden},
      {"2606:4700::1", AddressKind::kPublic}};
  for (const auto& [host, kind] : table) EXPECT_EQ(classify_host(host), kind) << host;
  EXPECT_FALSE(classify_host("example.com").has_value());
  EXPECT_FALSE(classify_host("localhost.example.com").has_value());
}

TEST(Address, RedirectsNeverLeadInwards) {
  EXPECT_TRUE(redirect_allowed(AddressKind::kPublic, AddressKind::kPublic));
  EXPECT_FALSE(redirect_allowed(AddressKind::kPublic, AddressKind::kPrivate));
  EXPECT_FALSE(redirect_allowed(AddressKind::kPublic, AddressKind::kLoopback));
  EXPECT_FALSE(redirect_allowed(AddressKind::kPrivate, AddressKind::kLoopback));
  EXPECT_TRUE(redirect_allowed(AddressKind::kPrivate, AddressKind::kPublic));
  for (const auto from : {AddressKind::kPublic, AddressKind::kPrivate, AddressKind::kLoopback}) {
    EXPECT_FALSE(redirect_allowed(from, AddressKind::kForbidden));
  }
}

}  // namespace
}  // namespace isthmus
