// Version, errors, cancel handles and limits.
#include <cstdlib>
#include <new>

#include "capi/border.h"
#include "capi/handles.h"

static_assert(ISTHMUS_VERSION_NUMBER == ISTHMUS_PROJECT_VERSION_NUMBER,
              "include/isthmus/isthmus.h and CMakeLists.txt name different versions");

namespace {

using isthmus::Code;

static_assert(ISTHMUS_OK == static_cast<int>(Code::kOk));
static_assert(ISTHMUS_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(ISTHMUS_NOT_FOUND == static_cast<int>(Code::kNotFound));
static_assert(ISTHMUS_CORRUPT == static_cast<int>(Code::kCorrupt));
static_assert(ISTHMUS_UNSUPPORTED == static_cast<int>(Code::kUnsupported));
static_assert(ISTHMUS_RESOURCE_EXHAUSTED == static_cast<int>(Code::kResourceExhausted));
static_assert(ISTHMUS_FAILED_PRECONDITION == static_cast<int>(Code::kFailedPrecondition));
static_assert(ISTHMUS_IO == static_cast<int>(Code::kIo));
static_assert(ISTHMUS_UNAVAILABLE == static_cast<int>(Code::kUnavailable));
static_assert(ISTHMUS_CANCELLED == static_cast<int>(Code::kCancelled));
static_assert(ISTHMUS_DEADLINE_EXCEEDED == static_cast<int>(Code::kDeadlineExceeded));
static_assert(ISTHMUS_INTERNAL == static_cast<int>(Code::kInternal));

}  // namespace

const char* isthmus_version(void) { return ISTHMUS_PROJECT_VERSION; }

int32_t isthmus_version_number(void) { return ISTHMUS_VERSION_NUMBER; }

const char* isthmus_code_name(isthmus_code code) {
  // Names are string literals, so they end with a zero byte.
  const auto value = static_cast<int>(code);
  if (value < ISTHMUS_OK || value > ISTHMUS_INTERNAL) return "unknown";
  return isthmus::code_name(static_cast<Code>(value)).data();
}

isthmus_code isthmus_error_code(const isthmus_error* error) {
  return error == nullptr ? ISTHMUS_OK : static_cast<isthmus_code>(error->code);
}

const char* isthmus_error_message(const isthmus_error* error) {
  if (error == nullptr) return "";
  return error->message ? error->message->c_str() : "out of memory";
}

void isthmus_error_free(isthmus_error* error) {
  if (error != nullptr && error->message) delete error;
}

void isthmus_free(void* memory) { std::free(memory); }

isthmus_code isthmus_cancel_create(isthmus_cancel** cancel, isthmus_error** error) {
  return isthmus::capi::border(error, [&]() -> isthmus::Status {
    ISTHMUS_RETURN_IF_ERROR(isthmus::capi::need_out(cancel, "cancel"));
    *cancel = new isthmus_cancel();
    return isthmus::ok_status();
  });
}

void isthmus_cancel_set(isthmus_cancel* cancel) {
  if (cancel != nullptr) cancel->source.cancel();
}

void isthmus_cancel_reset(isthmus_cancel* cancel) {
  if (cancel != nullptr) cancel->source.reset();
}

int32_t isthmus_cancel_is_set(const isthmus_cancel* cancel) {
  return cancel != nullptr && cancel->source.token().cancelled() ? 1 : 0;
}

void isthmus_cancel_free(isthmus_cancel* cancel) { delete cancel; }

void isthmus_limits_init(isthmus_limits* limits, size_t struct_size) {
  isthmus::capi::init_struct(isthmus_limits{}, limits, struct_size);
}
