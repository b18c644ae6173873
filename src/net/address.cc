#include "net/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace isthmus {
namespace {

AddressKind classify_v4(std::span<const uint8_t> a) {
  if (a[0] == 127) return AddressKind::kLoopback;
  const bool shared = a[0] == 100 && (a[1] & 0xc0) == 64;
  const bool rfc1918 = a[0] == 10 || (a[0] == 172 && (a[1] & 0xf0) == 16) || (a[0] == 192 && a[1] == 168);
  if (rfc1918 || shared) return AddressKind::kPrivate;
  const bool protocol = a[0] == 192 && a[1] == 0 && a[2] == 0;  // RFC 6890, IETF protocol assignments
  const bool link_local = a[0] == 169 && a[1] == 254;
  if (a[0] == 0 || a[0] >= 224 || link_local || protocol) return AddressKind::kForbidden;
  return AddressKind::kPublic;
}

bool starts_with(std::span<const uint8_t> a, std::initializer_list<uint8_t> head) {
  return std::equal(head.begin(), head.end(), a.begin());
}

AddressKind classify_v6(std::span<const uint8_t> a) {
  const bool zero12 = std::all_of(a.begin(), a.begin() + 12, [](uint8_t b) { return b == 0; });
  if (zero12 && a[12] == 0 && a[13] == 0 && a[14] == 0) {
    if (a[15] == 1) return AddressKind::kLoopback;
    if (a[15] == 0) return AddressKind::kForbidden;
  }
  const bool mapped = starts_with(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff});
  const bool nat64 = starts_with(a, {0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0});
  if (mapped || nat64 || zero12) return classify_v4(a.subspan(12, 4));
  if (starts_with(a, {0x20, 0x02})) return classify_v4(a.subspan(2, 4));  // 6to4
  if ((a[0] & 0xfe) == 0xfc) return AddressKind::kPrivate;
  if (a[0] == 0xff || (a[0] == 0xfe && (a[1] & 0xc0) == 0x80)) return AddressKind::kForbidden;
  return AddressKind::kPublic;
}

}  // namespace

AddressKind classify_address(std::span<const uint8_t> bytes) {
  if (bytes.size() == 4) return classify_v4(bytes);
  if (bytes.size() == 16) return classify_v6(bytes);
  return AddressKind::kForbidden;
}

std::optional<AddressKind> classify_host(const std::string& host) {
  std::array<uint8_t, 16> raw{};
  if (::inet_pton(AF_INET, host.c_str(), raw.data()) == 1) return classify_address(std::span(raw).first(4));
  if (::inet_pton(AF_INET6, host.c_str(), raw.data()) == 1) return classify_address(raw);
  std::string name = host;
  if (!name.empty() && name.back() == '.') name.pop_back();
  const std::string suffix = ".localhost";
  const bool below = name.size() > suffix.size() && name.ends_with(suffix);
  if (name == "localhost" || below) return AddressKind::kLoopback;
  return std::nullopt;
}

}  // namespace isthmus
