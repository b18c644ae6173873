// Downloads one file: resumes what is there, retries what may pass, checks what can be checked.
//
// A cut or stalled transfer goes on from the last byte with Range and If-Range; when the server's file has
// changed meanwhile the download starts over. Waits between attempts grow with jitter, or are what the server
// asks for. Blocking; stopped by options.http.stop. The sink owns the bytes; a failing sink ends the download
// with its own error. Errors: kFailedPrecondition (login needed, terms not accepted, refused redirect),
// kNotFound, kCorrupt (wrong length), kUnavailable (network or server, after the retries), kCancelled,
// kDeadlineExceeded, kInvalidArgument.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/rng.h"
#include "net/http_exchange.h"

namespace isthmus {

struct DownloadRequest {
  std::string url;
  std::optional<Credential> credential;
  std::string login_hint;           // one sentence added when the server answers 401 or 403
  uint64_t offset = 0;              // bytes that the sink has already
  std::string validator;            // of those bytes; empty: none is known
  std::optional<uint64_t> size;     // what the whole file must have
  bool resume_unvalidated = false;  // go on without a validator (the whole is checked by its hash later)
  uint64_t max_bytes = UINT64_MAX;  // refuse more than this
};

/// What a response promises, before its bytes.
struct DownloadStart {
  uint64_t offset = 0;            // where the coming bytes belong: drop all that you have behind it
  std::optional<uint64_t> total;  // size of the whole file
  std::string validator;          // to pass in DownloadRequest when resuming later
  std::string linked_sha256;      // the hub's own digest of the file (64 hex), else empty
};

class DownloadSink {
 public:
  virtual ~DownloadSink() = default;
  virtual Status begin(const DownloadStart& start) = 0;
  virtual Status write(std::span<const std::byte> bytes) = 0;
};

struct DownloadOptions {
  HttpOptions http;
  int max_attempts = 6;  // in a row without a new byte
  std::chrono::milliseconds first_wait{500};
  std::chrono::milliseconds max_wait{30'000};
  std::chrono::seconds max_retry_after{300};  // a server that asks for more ends the download
  uint64_t jitter_seed = 1;
  /// Told before each wait: what went wrong and how long the wait is. May be empty.
  std::function<void(const Status& why, std::chrono::milliseconds wait)> on_retry;
  /// Waits; replaced in tests. The default sleeps in short steps and returns early when `stop` says so.
  std::function<void(std::chrono::milliseconds)> sleep;
};

/// Downloads into `sink`; on success the sink has the whole file.
Status download(const DownloadRequest& request, DownloadSink& sink, const DownloadOptions& options);

/// The wait before attempt `failures` + 1: uniform in the upper half of first_wait * 2^(failures - 1),
/// capped.
std::chrono::milliseconds backoff(int failures, const DownloadOptions& options, Rng& rng);

}  // namespace isthmus
