// Cancellation and deadlines, passed down every call that may take long.
//
// A CancelSource is owned by whoever may stop the work; tokens are cheap copies that observe it. Checks are
// lock-free and may run on any thread, a signal handler included.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "base/status.h"

namespace isthmus {

class CancelToken {
 public:
  CancelToken() = default;  // never cancelled
  bool cancelled() const { return flag_ && flag_->load(std::memory_order_relaxed); }

 private:
  friend class CancelSource;
  explicit CancelToken(std::shared_ptr<const std::atomic<bool>> flag) : flag_(std::move(flag)) {}
  std::shared_ptr<const std::atomic<bool>> flag_;
};

class CancelSource {
 public:
  CancelSource() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  CancelToken token() const { return CancelToken(flag_); }
  void cancel() { flag_->store(true, std::memory_order_relaxed); }
  void reset() { flag_->store(false, std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

/// When a call must stop: a token, a time on the monotonic clock, both or neither.
struct StopPolicy {
  CancelToken token;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  /// OK, kCancelled or kDeadlineExceeded.
  Status check() const {
    if (token.cancelled()) return cancelled("stopped by the caller");
    if (deadline != std::chrono::steady_clock::time_point::max() &&
        std::chrono::steady_clock::now() >= deadline) {
      return deadline_exceeded("the deadline has passed");
    }
    return ok_status();
  }
};

}  // namespace isthmus
