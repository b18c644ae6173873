#include "base/status.h"

#include <array>

namespace isthmus {

std::string_view code_name(Code code) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "ok",          "invalid_argument",   "not_found",           "corrupt",
      "unsupported", "resource_exhausted", "failed_precondition", "io",
      "unavailable", "cancelled",          "deadline_exceeded",   "internal"};
  const auto i = static_cast<size_t>(code);
  return i < kNames.size() ? kNames[i] : "unknown";
}

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return rep_ ? rep_->message : kEmpty;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(code_name(code())) + ": " + message();
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  const std::string prefix = std::string(context) + ": ";
  // Two layers may both know the file; it is named once.
  return message().starts_with(prefix) ? *this : Status(code(), prefix + message());
}

Status invalid_argument(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }
Status not_found(std::string message) { return Status(Code::kNotFound, std::move(message)); }
Status corrupt(std::string message) { return Status(Code::kCorrupt, std::move(message)); }
Status unsupported(std::string message) { return Status(Code::kUnsupported, std::move(message)); }
Status resource_exhausted(std::string message) {
  return Status(Code::kResourceExhausted, std::move(message));
}
Status failed_precondition(std::string message) {
  return Status(Code::kFailedPrecondition, std::move(message));
}
Status io_error(std::string message) { return Status(Code::kIo, std::move(message)); }
Status unavailable(std::string message) { return Status(Code::kUnavailable, std::move(message)); }
Status cancelled(std::string message) { return Status(Code::kCancelled, std::move(message)); }
Status deadline_exceeded(std::string message) { return Status(Code::kDeadlineExceeded, std::move(message)); }
Status internal_error(std::string message) { return Status(Code::kInternal, std::move(message)); }

}  // namespace isthmus
