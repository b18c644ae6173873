#include "net/url.h"

#include <curl/curl.h>

#include <cstdlib>
#include <memory>

#include "base/checked.h"

namespace isthmus {
namespace {

constexpr size_t kMaxUrl = 16384;

struct CurlUrlFree {
  void operator()(CURLU* handle) const { curl_url_cleanup(handle); }
};
using CurlUrl = std::unique_ptr<CURLU, CurlUrlFree>;

/// A part of the address, "" when it has none.
std::string part(CURLU* handle, CURLUPart which, unsigned flags = 0) {
  char* raw = nullptr;
  if (curl_url_get(handle, which, &raw, flags) != CURLUE_OK || raw == nullptr) return "";
  std::string out(raw);
  curl_free(raw);
  return out;
}

bool is_default_port(const Origin& origin) { return origin.port == (origin.scheme == "https" ? 443 : 80); }

std::string bracketed(const std::string& host) {
  if (host.find(':') == std::string::npos) return host;
  std::string out(1, '[');
  out.append(host).push_back(']');
  return out;
}

Status load(CURLU* handle, std::string_view text, unsigned flags) {
  if (text.size() > kMaxUrl) return invalid_argument("an address of over 16384 bytes");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) {
      return invalid_argument("a blank or control character in an address");
    }
  }
  const std::string copy(text);
  const CURLUcode code = curl_url_set(handle, CURLUPART_URL, copy.c_str(), flags);
  if (code != CURLUE_OK) {
    return invalid_argument(std::string("not a usable address: ") + curl_url_strerror(code));
  }
  return ok_status();
}

Result<Url> take_apart(CURLU* handle) {
  Url out;
  out.origin.scheme = part(handle, CURLUPART_SCHEME);
  if (out.origin.scheme != "http" && out.origin.scheme != "https") {
    return invalid_argument("only http and https addresses are used");
  }
  if (!part(handle, CURLUPART_USER).empty() || !part(handle, CURLUPART_PASSWORD).empty()) {
    return invalid_argument("an address must not hold a user name or password");
  }
  std::string host = part(handle, CURLUPART_HOST);
  if (host.size() > 2 && host.front() == '[') host = std::string(host, 1, host.size() - 2);
  for (char& c : host) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (host.empty() || host.find('%') != std::string::npos || !part(handle, CURLUPART_ZONEID).empty()) {
    return invalid_argument("an address without a plain host name");
  }
  out.origin.host = host;
  const std::string port = part(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  const auto number = checked_cast<uint16_t>(std::strtoul(port.c_str(), nullptr, 10));
  if (!number || *number == 0) return invalid_argument("an address with a bad port");
  out.origin.port = *number;
  out.target = part(handle, CURLUPART_PATH);
  if (out.target.empty()) out.target.push_back('/');
  const std::string query = part(handle, CURLUPART_QUERY);
  if (!query.empty()) out.target.append(1, '?').append(query);
  return out;
}

}  // namespace

std::string Origin::text() const { return scheme + "://" + bracketed(host) + ':' + std::to_string(port); }

std::string Url::text() const {
  std::string out = origin.scheme + "://" + bracketed(origin.host);
  if (!is_default_port(origin)) out.append(1, ':').append(std::to_string(origin.port));
  return out + target;
}

std::string Url::public_text() const {
  const std::string whole = text();
  return whole.substr(0, whole.find('?'));
}

Result<Url> parse_url(std::string_view text) {
  const CurlUrl handle(curl_url());
  if (!handle) return resource_exhausted("no memory for an address");
  ISTHMUS_RETURN_IF_ERROR(load(handle.get(), text, CURLU_NON_SUPPORT_SCHEME));
  return take_apart(handle.get());
}

Result<Url> resolve_url(const Url& base, std::string_view location) {
  const CurlUrl handle(curl_url());
  if (!handle) return resource_exhausted("no memory for an address");
  ISTHMUS_RETURN_IF_ERROR(load(handle.get(), base.text(), 0));
  ISTHMUS_RETURN_IF_ERROR(load(handle.get(), location, CURLU_NON_SUPPORT_SCHEME));
  return take_apart(handle.get());
}

std::string percent_encode(std::string_view text, bool keep_slash) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash);
    if (plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

}  // namespace isthmus
