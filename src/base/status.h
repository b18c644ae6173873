// Status and Result<T>: how every part reports failure. No exception crosses a layer.
//
// A Status is OK or a code plus one sentence that names what is wrong and where (file, key, tensor, offset).
// OK costs one null pointer. Both types are [[nodiscard]]; pass errors up with the two macros at the end, and
// add context where a boundary is crossed. Values are immutable and safe to share between threads.
#pragma once

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace isthmus {

enum class Code {
  kOk = 0,
  kInvalidArgument,     // the caller asked for something that cannot be
  kNotFound,            // a file, key, tensor or model that is not there
  kCorrupt,             // bytes that break their own format
  kUnsupported,         // valid, but not something we can do
  kResourceExhausted,   // memory, disk, context or a limit
  kFailedPrecondition,  // right call, wrong time
  kIo,                  // the operating system said no
  kUnavailable,         // a peer or server cannot answer now
  kCancelled,
  kDeadlineExceeded,
  kInternal,  // our own bug
};

/// Short stable name of a code, as printed and as used in JSON ("not_found").
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  /// The sentence, without the code; empty when OK.
  const std::string& message() const;
  /// "not_found: no tensor named 'x'", or "ok".
  std::string to_string() const;
  /// The same error with "context: " before its message, unless that is there already; OK stays OK.
  Status with_context(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

inline Status ok_status() { return Status(); }
Status invalid_argument(std::string message);
Status not_found(std::string message);
Status corrupt(std::string message);
Status unsupported(std::string message);
Status resource_exhausted(std::string message);
Status failed_precondition(std::string message);
Status io_error(std::string message);
Status unavailable(std::string message);
Status cancelled(std::string message);
Status deadline_exceeded(std::string message);
Status internal_error(std::string message);

/// A value or the Status that explains why there is none. Reading the value of a failed Result ends the
/// process: test ok() first, or use ISTHMUS_ASSIGN_OR_RETURN.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : rep_(std::in_place_index<1>, std::move(value)) {}        // NOLINT: implicit on purpose
  Result(Status status) : rep_(std::in_place_index<0>, std::move(status)) {  // NOLINT: implicit on purpose
    if (std::get<0>(rep_).ok()) std::abort();
  }

  bool ok() const { return rep_.index() == 1; }
  explicit operator bool() const { return ok(); }
  Status status() const { return ok() ? Status() : std::get<0>(rep_); }

  T& value() & {
    require();
    return std::get<1>(rep_);
  }
  const T& value() const& {
    require();
    return std::get<1>(rep_);
  }
  T&& value() && {
    require();
    return std::get<1>(std::move(rep_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void require() const {
    if (!ok()) std::abort();
  }
  std::variant<Status, T> rep_;
};

}  // namespace isthmus

#define ISTHMUS_CONCAT_INNER(a, b) a##b
#define ISTHMUS_CONCAT(a, b) ISTHMUS_CONCAT_INNER(a, b)

/// Returns from the calling function when `expr` (a Status) is an error.
#define ISTHMUS_RETURN_IF_ERROR(expr)                \
  do {                                               \
    ::isthmus::Status isthmus_status = (expr);       \
    if (!isthmus_status.ok()) return isthmus_status; \
  } while (false)

/// `ISTHMUS_ASSIGN_OR_RETURN(auto x, f());`: x is the value of the Result, or the function returns its
/// Status.
#define ISTHMUS_ASSIGN_OR_RETURN(lhs, expr) \
  ISTHMUS_ASSIGN_OR_RETURN_IMPL(ISTHMUS_CONCAT(isthmus_result_, __LINE__), lhs, expr)
#define ISTHMUS_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return tmp.status();                 \
  lhs = std::move(tmp).value()
