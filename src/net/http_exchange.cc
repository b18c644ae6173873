#include "net/http_exchange.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace isthmus {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxHeaderBytes = size_t{256} * 1024;
constexpr size_t kMaxIgnoredBody = size_t{256} * 1024;  // of an error page or a redirect

struct EasyFree {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct MultiFree {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, ListFree>;

/// libcurl's process-wide set-up, once; C++ makes the first call safe between threads.
bool curl_ready() {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

bool proxy_configured() {
  for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return true;
  }
  return false;
}

AddressKind classify_socket(const curl_sockaddr& target) {
  if (target.family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &target.addr, sizeof in);
    const auto* raw = reinterpret_cast<const uint8_t*>(&in.sin_addr);
    return classify_address(std::span(raw, 4));
  }
  if (target.family == AF_INET6) {
    sockaddr_in6 in{};
    // curl_sockaddr declares a plain sockaddr but stores up to `addrlen` bytes behind it.
    std::memcpy(&in, reinterpret_cast<const char*>(&target.addr),
                std::min<size_t>(sizeof in, target.addrlen));
    return classify_address(std::span(in.sin6_addr.s6_addr, 16));
  }
  return AddressKind::kForbidden;
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

void collect_first_origin(const HeaderMap& headers, HeaderMap& out) {
  for (const auto& [name, value] : headers) {
    if (name.starts_with("x-linked-") || name.starts_with("x-repo-") || name.starts_with("x-error-")) {
      out[name] = value;
    }
  }
}

/// The three digits of "HTTP/1.1 200 OK"; 0 when they are not there.
int status_code(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.size() < blank + 4) return 0;
  return static_cast<int>(parse_length(line.substr(blank + 1, 3)).value_or(0));
}

/// One request to one origin. The callbacks below are C functions that get `this`.
class Hop {
 public:
  Hop(const HttpOptions& options, const ExchangeHandler& handler, const Origin& first, HttpResponse& response)
      : options_(options), handler_(handler), first_(first), response_(response) {}

  /// `allowed_from`: the kind of address that the chain began at; nullopt on the first hop, where the user
  /// chose the address.
  ExchangeOutcome run(const HttpGet& request, bool send_credential, std::optional<AddressKind> allowed_from);

  /// The kind of address that was dialled (through a proxy: of the host name as far as it tells).
  AddressKind dialled() const { return dialled_; }

 private:
  static size_t header_callback(char* data, size_t size, size_t count, void* self);
  static size_t body_callback(char* data, size_t size, size_t count, void* self);
  static curl_socket_t socket_callback(void* self, curlsocktype purpose, curl_sockaddr* address);

  Status configure(CURL* easy, const HttpGet& request, bool send_credential);
  Status on_header(std::string_view line);
  Status on_body(std::span<const std::byte> bytes);
  Status deliver_response();
  ExchangeOutcome drive(CURL* easy);
  ExchangeOutcome judge(CURLcode code);

  const HttpOptions& options_;
  const ExchangeHandler& handler_;
  const Origin& first_;
  HttpResponse& response_;
  HeaderList headers_;
  HeaderList resolve_;
  std::optional<AddressKind> allowed_from_;
  bool through_proxy_ = proxy_configured();
  AddressKind dialled_ = AddressKind::kPublic;
  bool refused_address_ = false;
  bool headers_done_ = false;
  bool delivered_ = false;
  size_t header_bytes_ = 0;
  size_t ignored_ = 0;
  Clock::time_point last_activity_ = Clock::now();
  Status failure_;  // what a callback wants reported
};

size_t Hop::header_callback(char* data, size_t size, size_t count, void* self) {
  auto* hop = static_cast<Hop*>(self);
  hop->last_activity_ = Clock::now();
  hop->failure_ = hop->on_header(std::string_view(data, size * count));
  return hop->failure_.ok() ? size * count : 0;
}

size_t Hop::body_callback(char* data, size_t size, size_t count, void* self) {
  auto* hop = static_cast<Hop*>(self);
  hop->last_activity_ = Clock::now();
  hop->failure_ = hop->on_body(std::as_bytes(std::span(data, size * count)));
  return hop->failure_.ok() ? size * count : CURL_WRITEFUNC_ERROR;
}

curl_socket_t Hop::socket_callback(void* self, curlsocktype purpose, curl_sockaddr* address) {
  auto* hop = static_cast<Hop*>(self);
  if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKET_BAD;
  if (!hop->through_proxy_) {
    const AddressKind kind = classify_socket(*address);
    if (hop->allowed_from_ && !redirect_allowed(*hop->allowed_from_, kind)) {
      hop->refused_address_ = true;
      return CURL_SOCKET_BAD;
    }
    hop->dialled_ = kind;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

Status Hop::on_header(std::string_view line) {
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes) return corrupt("the server's headers are over 256 KiB");
  if (line.starts_with("HTTP/")) {
    response_.headers.clear();
    response_.status = status_code(line);
    headers_done_ = false;
    return ok_status();
  }
  if (line == "\r\n" || line == "\n") {
    headers_done_ = true;
    if (response_.url.origin == first_)
      collect_first_origin(response_.headers, response_.first_origin_headers);
    return ok_status();
  }
  if (!headers_done_) add_header_line(line, response_.headers);  // after the body: trailers, not wanted
  return ok_status();
}

Status Hop::deliver_response() {
  if (delivered_) return ok_status();
  delivered_ = true;
  return handler_.on_response ? handler_.on_response(response_) : ok_status();
}

Status Hop::on_body(std::span<const std::byte> bytes) {
  if (response_.status != 200 && response_.status != 206) {
    ignored_ += bytes.size();
    if (ignored_ > kMaxIgnoredBody) return corrupt("an error page of over 256 KiB");
    return ok_status();
  }
  ISTHMUS_RETURN_IF_ERROR(deliver_response());
  return handler_.on_body ? handler_.on_body(bytes) : ok_status();
}

Status Hop::configure(CURL* easy, const HttpGet& request, bool send_credential) {
  bool good = true;
  const auto append = [&good](HeaderList& list, const std::string& line) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    good &= longer != nullptr;
    if (longer == nullptr) return;
    static_cast<void>(list.release());
    list.reset(longer);
  };
  const auto add = [&](const std::string& line) { append(headers_, line); };
  for (const std::string& answer : options_.resolve) append(resolve_, answer);
  add("Accept: */*");
  add("Accept-Encoding: identity");
  for (const std::string& line : request.headers) add(line);
  if (send_credential) add("Authorization: Bearer " + request.credential->token);

  std::string ca_file = options_.ca_file;
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
    const char* value = std::getenv(name);
    if (ca_file.empty() && value != nullptr) ca_file = value;
  }
  const auto set = [&](CURLoption option, auto value) {
    good &= curl_easy_setopt(easy, option, value) == CURLE_OK;
  };
  set(CURLOPT_URL, request.url.text().c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_BUFFERSIZE, 256L * 1024L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
  set(CURLOPT_USERAGENT, options_.user_agent.c_str());
  set(CURLOPT_HTTPHEADER, headers_.get());
  if (resolve_) set(CURLOPT_RESOLVE, resolve_.get());
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  if (!ca_file.empty()) set(CURLOPT_CAINFO, ca_file.c_str());
  set(CURLOPT_HEADERFUNCTION, &Hop::header_callback);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, &Hop::body_callback);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_OPENSOCKETFUNCTION, &Hop::socket_callback);
  set(CURLOPT_OPENSOCKETDATA, static_cast<void*>(this));
  return good ? ok_status() : internal_error("libcurl refused an option");
}

ExchangeOutcome Hop::judge(CURLcode code) {
  if (!failure_.ok()) return {failure_, false};
  if (refused_address_) {
    return {failed_precondition("refused: the redirect leads to an address inside this machine or network"),
            false};
  }
  if (code == CURLE_OK) {
    const Status status = is_redirect(response_.status) ? ok_status() : deliver_response();
    return {status, false};
  }
  const std::string host = response_.url.origin.text();
  const std::string what = host + ": " + curl_easy_strerror(code);
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return {failed_precondition(what + " (its certificate is not trusted here)"), false};
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return {invalid_argument(what), false};
    case CURLE_OUT_OF_MEMORY:
      return {resource_exhausted(what), false};
    default:
      // Everything else is the network: no name, no route, cut, timed out, broken framing.
      return {unavailable(what), true};
  }
}

ExchangeOutcome Hop::drive(CURL* easy) {
  const std::unique_ptr<CURLM, MultiFree> multi(curl_multi_init());
  if (!multi || curl_multi_add_handle(multi.get(), easy) != CURLM_OK) {
    return {resource_exhausted("no memory for a transfer"), false};
  }
  ExchangeOutcome outcome;
  int running = 1;
  while (running > 0) {
    if (curl_multi_perform(multi.get(), &running) != CURLM_OK) {
      outcome = {internal_error("libcurl failed"), false};
      break;
    }
    if (running == 0) break;
    outcome.status = options_.stop.check();
    if (!outcome.status.ok()) break;
    if (Clock::now() - last_activity_ > options_.stall_timeout) {
      outcome = {unavailable(response_.url.origin.text() + ": no byte for " +
                             std::to_string(options_.stall_timeout.count()) + " ms"),
                 true};
      break;
    }
    curl_multi_poll(multi.get(), nullptr, 0, 50, nullptr);
  }
  if (outcome.status.ok()) {
    int left = 0;
    const CURLMsg* message = curl_multi_info_read(multi.get(), &left);
    const bool done = message != nullptr && message->msg == CURLMSG_DONE;
    outcome =
        done ? judge(message->data.result) : ExchangeOutcome{internal_error("libcurl: no result"), false};
  }
  curl_multi_remove_handle(multi.get(), easy);
  return outcome;
}

ExchangeOutcome Hop::run(const HttpGet& request, bool send_credential,
                         std::optional<AddressKind> allowed_from) {
  allowed_from_ = allowed_from;
  response_.url = request.url;
  response_.headers.clear();
  response_.status = 0;
  if (const auto kind = classify_host(request.url.origin.host)) dialled_ = *kind;
  const std::unique_ptr<CURL, EasyFree> easy(curl_easy_init());
  if (!easy) return {resource_exhausted("no memory for a transfer"), false};
  if (Status status = configure(easy.get(), request, send_credential); !status.ok()) return {status, false};
  return drive(easy.get());
}

/// The rules that can be told from the address text alone.
Status check_redirect(const Url& from, const Url& to, AddressKind began_at) {
  const auto literal = classify_host(to.origin.host);
  if (from.origin.scheme == "https" && to.origin.scheme != "https") {
    return failed_precondition("refused: a redirect from https to http (" + to.public_text() + ")");
  }
  if (to.origin.scheme == "http" && literal != AddressKind::kLoopback) {
    return failed_precondition("refused: a redirect to plain http (" + to.public_text() + ")");
  }
  if (literal && !redirect_allowed(began_at, *literal)) {
    return failed_precondition("refused: a redirect to an address inside this machine or network (" +
                               to.origin.text() + ")");
  }
  return ok_status();
}

}  // namespace

ExchangeOutcome http_get(const HttpGet& request, const HttpOptions& options, const ExchangeHandler& handler) {
  if (!curl_ready()) return {internal_error("libcurl could not be set up"), false};
  const auto literal = classify_host(request.url.origin.host);
  if (request.url.origin.scheme == "http" && literal != AddressKind::kLoopback) {
    return {invalid_argument("plain http is used only for this machine itself; give an https address"),
            false};
  }
  HttpResponse response;
  HttpGet next = request;
  std::optional<AddressKind> began_at;
  for (int hops = 0; hops <= options.max_redirects; ++hops) {
    const bool ours = request.credential && request.credential->origin == next.url.origin;
    Hop hop(options, handler, request.url.origin, response);
    ExchangeOutcome outcome = hop.run(next, ours, began_at);
    if (!outcome.status.ok()) return outcome;
    if (!began_at) began_at = hop.dialled();
    if (!is_redirect(response.status)) return outcome;
    const auto location = response.headers.find("location");
    if (location == response.headers.end()) return {corrupt("a redirect without a target"), false};
    const Result<Url> target = resolve_url(next.url, location->second);
    if (!target.ok()) {
      return {failed_precondition("refused: a redirect to a target that is no http address: " +
                                  target.status().message()),
              false};
    }
    if (Status ok = check_redirect(next.url, *target, *began_at); !ok.ok()) return {ok, false};
    next.url = *target;
  }
  return {failed_precondition("more than " + std::to_string(options.max_redirects) + " redirects"), false};
}

}  // namespace isthmus
