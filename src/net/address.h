// What kind of network an IP address belongs to, and which kinds a redirect may lead to.
//
// A server that we were sent to by somebody else's redirect must not be able to make us ask the user's own
// machine or network (server-side request forgery). Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace isthmus {

/// Ordered from the outside to the inside.
enum class AddressKind {
  kPublic,
  kPrivate,    // RFC 1918, RFC 6598 shared space, fc00::/7
  kLoopback,   // 127.0.0.0/8, ::1
  kForbidden,  // link-local (cloud metadata lives there), unspecified, multicast, broadcast, reserved
};

/// Kind of an IPv4 (4 bytes) or IPv6 (16 bytes) address in network order; IPv4 inside IPv6 (mapped, NAT64,
/// 6to4) counts as that IPv4 address. Any other length is kForbidden.
AddressKind classify_address(std::span<const uint8_t> bytes);

/// Kind of a host that is an IP literal or "localhost"; nullopt for any other name.
std::optional<AddressKind> classify_host(const std::string& host);

/// Whether a request that began at an address of kind `from` may be redirected to one of kind `to`: never
/// inwards, never to a forbidden one.
constexpr bool redirect_allowed(AddressKind from, AddressKind to) {
  return to != AddressKind::kForbidden && static_cast<int>(to) <= static_cast<int>(from);
}

}  // namespace isthmus
