#include "net/download.h"

#include <algorithm>
#include <thread>

namespace isthmus {
namespace {

using std::chrono::milliseconds;

/// A file that keeps changing while it is read ends the download.
constexpr int kMaxRestarts = 3;

bool is_hex64(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string field(const HeaderMap& headers, const char* name) {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

/// The hub's linked tag is the quoted SHA-256 of a large file.
std::string linked_sha256(const HttpResponse& response) {
  std::string tag = field(response.first_origin_headers, "x-linked-etag");
  if (tag.size() == 66 && tag.front() == '"' && tag.back() == '"') tag = tag.substr(1, 64);
  return is_hex64(tag) ? tag : "";
}

class Downloader {
 public:
  Downloader(const DownloadRequest& request, DownloadSink& sink, const DownloadOptions& options, Url url)
      : request_(request), sink_(sink), options_(options), url_(std::move(url)), rng_(options.jitter_seed) {
    offset_ = request.offset;
    validator_ = request.validator;
  }

  Status run();

 private:
  ExchangeOutcome attempt();
  Status on_response(const HttpResponse& response);
  Status on_full(const HttpResponse& response);
  Status on_part(const HttpResponse& response);
  Status begin(const HttpResponse& response, uint64_t offset, std::optional<uint64_t> total);
  Status on_body(std::span<const std::byte> bytes);
  Status refused(const HttpResponse& response);
  Status start_over(const std::string& why);
  Status wait(int failures, const Status& why);

  const DownloadRequest& request_;
  DownloadSink& sink_;
  const DownloadOptions& options_;
  const Url url_;
  Rng rng_;
  uint64_t offset_ = 0;
  std::string validator_;
  std::optional<uint64_t> total_;
  int restarts_ = 0;
  bool begun_ = false;      // the current attempt handed its start to the sink
  bool complete_ = false;   // the server says that we have it all
  bool transient_ = false;  // the error made in a callback may pass
  std::optional<std::chrono::seconds> retry_after_;
};

Status Downloader::start_over(const std::string& why) {
  transient_ = ++restarts_ <= kMaxRestarts;
  offset_ = 0;
  validator_.clear();
  total_.reset();
  return unavailable(url_.origin.text() + ": " + why);
}

Status Downloader::begin(const HttpResponse& response, uint64_t offset, std::optional<uint64_t> total) {
  if (total && request_.size && *total != *request_.size) {
    return corrupt("the server's file has " + std::to_string(*total) + " bytes, expected " +
                   std::to_string(*request_.size));
  }
  if (total && *total > request_.max_bytes) {
    return resource_exhausted("the file has " + std::to_string(*total) + " bytes, the limit is " +
                              std::to_string(request_.max_bytes));
  }
  DownloadStart start;
  start.offset = offset;
  start.total = total;
  start.validator = strong_validator(response.headers);
  start.linked_sha256 = linked_sha256(response);
  offset_ = offset;
  total_ = total;
  validator_ = start.validator;
  begun_ = true;
  return sink_.begin(start);
}

Status Downloader::on_full(const HttpResponse& response) {
  const std::string length = field(response.headers, "content-length");
  std::optional<uint64_t> total;
  if (!length.empty()) {
    total = parse_length(length);
    if (!total) return corrupt("a bad Content-Length");
  }
  return begin(response, 0, total);
}

Status Downloader::on_part(const HttpResponse& response) {
  const auto range = parse_content_range(field(response.headers, "content-range"));
  if (!range || !range->first) return start_over("a bad Content-Range");
  if (offset_ == 0 || *range->first != offset_) return start_over("a part that was not asked for");
  const std::string now = strong_validator(response.headers);
  const bool same = validator_.empty() || now.empty() || now == validator_;
  if (!same || (total_ && range->total && *total_ != *range->total)) {
    return start_over("the file changed on the server");
  }
  if (range->total && *range->last + 1 != *range->total) return start_over("a part that ends early");
  return begin(response, offset_, range->total);
}

Status Downloader::refused(const HttpResponse& response) {
  const std::string said = printable(field(response.first_origin_headers, "x-error-message"), 200);
  std::string what = "the server answered " + std::to_string(response.status) + " for " + url_.public_text();
  if (!said.empty()) what += " (" + said + ")";
  const std::string hint = request_.login_hint.empty() ? "" : "; " + request_.login_hint;
  switch (response.status) {
    case 401:
      return failed_precondition(what + ": a login is needed" + hint);
    case 403:
      return failed_precondition(what + ": access is denied" + hint);
    case 404:
    case 410:
      return not_found(what);
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      transient_ = true;
      retry_after_ =
          parse_retry_after(field(response.headers, "retry-after"), std::chrono::system_clock::now());
      return unavailable(what);
    default:
      return failed_precondition(what);
  }
}

Status Downloader::on_response(const HttpResponse& response) {
  const std::string encoding = field(response.headers, "content-encoding");
  const bool body = response.status == 200 || response.status == 206;
  if (body && !encoding.empty() && encoding != "identity") {
    return unsupported("the server sends the file compressed, although it was asked not to");
  }
  if (response.status == 200) return on_full(response);
  if (response.status == 206) return on_part(response);
  if (response.status == 416 && offset_ > 0) {
    // Nothing is left to send: either we have it all, or our bytes are of another file.
    const auto range = parse_content_range(field(response.headers, "content-range"));
    if (range && range->total == offset_ && (!validator_.empty() || request_.resume_unvalidated)) {
      complete_ = true;
      return begin(response, offset_, offset_);
    }
    return start_over("the file is shorter than what was downloaded before");
  }
  return refused(response);
}

Status Downloader::on_body(std::span<const std::byte> bytes) {
  if (complete_) return ok_status();
  const uint64_t limit =
      std::min(total_.value_or(request_.max_bytes), request_.size.value_or(request_.max_bytes));
  if (bytes.size() > limit - std::min(limit, offset_))
    return corrupt("the server sends more bytes than it said");
  ISTHMUS_RETURN_IF_ERROR(sink_.write(bytes));
  offset_ += bytes.size();
  return ok_status();
}

ExchangeOutcome Downloader::attempt() {
  if (offset_ > 0 && validator_.empty() && !request_.resume_unvalidated) offset_ = 0;
  begun_ = false;
  complete_ = false;
  transient_ = false;
  retry_after_.reset();
  HttpGet get;
  get.url = url_;
  get.credential = request_.credential;
  if (offset_ > 0) {
    get.headers.push_back("Range: bytes=" + std::to_string(offset_) + "-");
    if (!validator_.empty()) get.headers.push_back("If-Range: " + validator_);
  }
  ExchangeHandler handler;
  handler.on_response = [this](const HttpResponse& response) { return on_response(response); };
  handler.on_body = [this](std::span<const std::byte> bytes) { return on_body(bytes); };
  ExchangeOutcome outcome = http_get(get, options_.http, handler);
  if (!outcome.status.ok()) {
    outcome.transient |= transient_;
    return outcome;
  }
  if (!begun_) return {internal_error("a response was not handled"), false};
  if (total_ && offset_ < *total_) return {unavailable(url_.origin.text() + ": the transfer was cut"), true};
  if (request_.size && offset_ != *request_.size) {
    return {corrupt("the file has " + std::to_string(offset_) + " bytes, expected " +
                    std::to_string(*request_.size)),
            false};
  }
  return outcome;
}

Status Downloader::wait(int failures, const Status& why) {
  milliseconds pause = backoff(failures, options_, rng_);
  if (retry_after_) {
    if (*retry_after_ > options_.max_retry_after) {
      return unavailable(why.message() + "; it asks to wait " + std::to_string(retry_after_->count()) + " s");
    }
    pause = std::max<milliseconds>(*retry_after_, milliseconds(1));
  }
  if (options_.on_retry) options_.on_retry(why, pause);
  if (options_.sleep) {
    options_.sleep(pause);
    return options_.http.stop.check();
  }
  const auto until = std::chrono::steady_clock::now() + pause;
  while (std::chrono::steady_clock::now() < until) {
    ISTHMUS_RETURN_IF_ERROR(options_.http.stop.check());
    std::this_thread::sleep_for(std::min(pause, milliseconds(50)));
  }
  return options_.http.stop.check();
}

Status Downloader::run() {
  int failures = 0;
  for (;;) {
    const uint64_t before = offset_;
    const ExchangeOutcome outcome = attempt();
    if (outcome.status.ok() || !outcome.transient) return outcome.status;
    const bool progress = begun_ && offset_ > before;
    failures = progress ? 1 : failures + 1;
    if (failures >= options_.max_attempts) {
      return unavailable(outcome.status.message() + " (given up after " + std::to_string(failures) +
                         " attempts)");
    }
    ISTHMUS_RETURN_IF_ERROR(wait(failures, outcome.status));
  }
}

}  // namespace

milliseconds backoff(int failures, const DownloadOptions& options, Rng& rng) {
  const int doublings = std::clamp(failures - 1, 0, 20);
  const double full =
      std::min(static_cast<double>(options.first_wait.count()) * static_cast<double>(1 << doublings),
               static_cast<double>(options.max_wait.count()));
  return milliseconds(static_cast<int64_t>(full * (0.5 + 0.5 * rng.uniform())));
}

Status download(const DownloadRequest& request, DownloadSink& sink, const DownloadOptions& options) {
  ISTHMUS_ASSIGN_OR_RETURN(Url url, parse_url(request.url));
  return Downloader(request, sink, options, std::move(url)).run();
}

}  // namespace isthmus
