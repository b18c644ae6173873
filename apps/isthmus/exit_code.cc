#include "apps/isthmus/exit_code.h"

namespace isthmus::cli {

ExitCode exit_code(Code code) {
  switch (code) {
    case Code::kOk:
      return ExitCode::kOk;
    case Code::kInvalidArgument:
      return ExitCode::kUsage;
    case Code::kNotFound:
      return ExitCode::kNotFound;
    case Code::kCorrupt:
      return ExitCode::kCorrupt;
    case Code::kResourceExhausted:
      return ExitCode::kOutOfResources;
    case Code::kUnsupported:
      return ExitCode::kUnsupported;
    case Code::kUnavailable:
      return ExitCode::kUnavailable;
    case Code::kDeadlineExceeded:
      return ExitCode::kDeadlineExceeded;
    case Code::kCancelled:
      return ExitCode::kInterrupted;
    case Code::kFailedPrecondition:
    case Code::kIo:
    case Code::kInternal:
      return ExitCode::kFailed;
  }
  return ExitCode::kFailed;
}

}  // namespace isthmus::cli
