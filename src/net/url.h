// http and https addresses, taken apart by libcurl's own parser so that what is checked is what is dialled.
//
// A Url is a value. User names and passwords in addresses are refused (they would end up in logs and
// records); a fragment is dropped. Thread-safe. Errors: kInvalidArgument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace isthmus {

/// Where a request goes, and what a credential is bound to.
struct Origin {
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case; an IPv6 literal without brackets
  uint16_t port = 0;

  bool operator==(const Origin&) const = default;
  /// "https://host:port", the port always shown.
  std::string text() const;
};

struct Url {
  Origin origin;
  std::string target;  // path and query, at least "/"

  /// The address as given to the client.
  std::string text() const;
  /// The same without its query, which may carry a signature: for messages and logs.
  std::string public_text() const;
};

/// Parses an absolute http or https address.
Result<Url> parse_url(std::string_view text);

/// Parses `location`, absolute or relative, as seen from `base` (RFC 3986, section 5).
Result<Url> resolve_url(const Url& base, std::string_view location);

/// Percent-encodes everything but letters, digits and "-._~"; '/' stays when `keep_slash`.
std::string percent_encode(std::string_view text, bool keep_slash);

}  // namespace isthmus
