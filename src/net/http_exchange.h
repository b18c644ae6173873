// One GET over libcurl, redirects included: who may be dialled, what is sent there, where the body goes.
//
// Redirects are followed here and not by libcurl, because the rules are ours: at most ten; https never to
// http; never from an outer network to an inner one, and never to a link-local address (net/address.h),
// checked on the address literal and again on the address that the name resolved to (through a proxy only the
// literal can be seen); a credential goes only to the origin it was issued for. Bodies are never
// decompressed. Blocking, one exchange per thread at a time; no state is shared. Proxies come from the usual
// environment variables.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "net/address.h"
#include "net/http_headers.h"
#include "net/url.h"

namespace isthmus {

/// A bearer token and the only origin that may see it.
struct Credential {
  Origin origin;
  std::string token;
};

struct HttpOptions {
  std::chrono::milliseconds connect_timeout{20'000};
  std::chrono::milliseconds stall_timeout{30'000};  // without a single byte coming in
  int max_redirects = 10;
  std::string user_agent = "isthmus";
  std::string ca_file;  // PEM bundle; empty: the system's, or SSL_CERT_FILE / CURL_CA_BUNDLE when set
  std::vector<std::string> resolve;  // "host:port:address" answers that replace the name service's
  StopPolicy stop;
};

struct HttpGet {
  Url url;
  std::vector<std::string> headers;  // "Name: value"
  std::optional<Credential> credential;
};

/// The final response of a chain of redirects.
struct HttpResponse {
  int status = 0;
  HeaderMap headers;
  /// Fields that the hub sends with its redirect and the storage behind it does not (x-linked-*,
  /// x-repo-commit, x-error-*), collected over the responses of the first origin.
  HeaderMap first_origin_headers;
  Url url;  // where it came from
};

/// What happened, and whether trying again may help.
struct ExchangeOutcome {
  Status status;
  bool transient = false;
};

struct ExchangeHandler {
  /// Called once, with the final response's headers, before its body. An error ends the exchange with it.
  std::function<Status(const HttpResponse&)> on_response;
  /// Called for each piece of the body of a 200 or 206.
  std::function<Status(std::span<const std::byte>)> on_body;
};

/// Runs the exchange. OK means a complete response of any status was delivered to the handler.
ExchangeOutcome http_get(const HttpGet& request, const HttpOptions& options, const ExchangeHandler& handler);

}  // namespace isthmus
