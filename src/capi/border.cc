#include "capi/border.h"

#include <chrono>
#include <cstdlib>
#include <memory>

#include "capi/handles.h"

namespace isthmus::capi {
namespace {

constexpr size_t kLargestStruct = size_t{1} << 16;          // a larger struct_size was never set
constexpr uint64_t kLongestDeadlineMs = 1'000'000'000'000;  // 31 years, far inside the clock's range

/// Given out when there is no memory for an error; never freed.
isthmus_error* no_memory_error() noexcept {
  static isthmus_error error{Code::kResourceExhausted, nullptr};
  return &error;
}

}  // namespace

isthmus_code report(const Status& status, isthmus_error** error) noexcept {
  if (error != nullptr) {
    try {
      auto made = std::make_unique<isthmus_error>();
      made->code = status.code();
      made->message = std::make_unique<std::string>(status.message());
      *error = made.release();
    } catch (...) {
      return report_no_memory(error);
    }
  }
  return static_cast<isthmus_code>(status.code());
}

isthmus_code report_no_memory(isthmus_error** error) noexcept {
  if (error != nullptr) *error = no_memory_error();
  return ISTHMUS_RESOURCE_EXHAUSTED;
}

isthmus_code report_exception(const char* what, isthmus_error** error) noexcept {
  try {
    return report(internal_error(std::string("exception: ") + what), error);
  } catch (...) {
    return report_no_memory(error);
  }
}

Status need(const void* pointer, const char* name) {
  return pointer != nullptr ? ok_status() : invalid_argument(std::string(name) + " is null");
}

Result<std::string_view> text_of(const char* text, size_t length, const char* name) {
  if (text == nullptr && length > 0) return need(text, name);
  if (length > PTRDIFF_MAX) return invalid_argument(std::string(name) + ": its length cannot be");
  return std::string_view(text, length);
}

Status check_tokens(std::span<const TokenId> tokens, size_t vocab, const char* name) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<size_t>(tokens[i]) >= vocab) {
      return invalid_argument(std::string(name) + "[" + std::to_string(i) + "] is " +
                              std::to_string(tokens[i]) + "; the vocabulary has " + std::to_string(vocab) +
                              " tokens");
    }
  }
  return ok_status();
}

Status check_choice(int32_t value, int32_t last, const char* name) {
  if (value >= 0 && value <= last) return ok_status();
  return invalid_argument(std::string(name) + " is " + std::to_string(value) + "; it must be 0 to " +
                          std::to_string(last));
}

Status check_flags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return ok_status();
  return invalid_argument("flags has " + std::to_string(flags & ~known) + ", which means nothing here");
}

void give_text(std::string_view text, char** out, size_t* length) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *out = copy;
  if (length != nullptr) *length = text.size();
}

void give_tokens(std::span<const TokenId> tokens, isthmus_token** out, size_t* count) {
  // One more than needed: malloc(0) may give null, which means failure here.
  auto* copy = static_cast<isthmus_token*>(std::malloc((tokens.size() + 1) * sizeof(isthmus_token)));
  if (copy == nullptr) throw std::bad_alloc();
  if (!tokens.empty()) std::memcpy(copy, tokens.data(), tokens.size_bytes());
  *out = copy;
  *count = tokens.size();
}

Result<size_t> understood_bytes(const void* from, size_t struct_size, size_t known, const char* name) {
  if (struct_size < sizeof(size_t) || struct_size > kLargestStruct) {
    return invalid_argument(std::string(name) + ".struct_size is not set");
  }
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (size_t i = known; i < struct_size; ++i) {
    if (bytes[i] != 0) {
      return unsupported(std::string(name) + " has a field at byte " + std::to_string(i) +
                         " that this version of the library does not know");
    }
  }
  return struct_size < known ? struct_size : known;
}

Result<StopPolicy> stop_policy(const isthmus_limits* limits) {
  isthmus_limits known{sizeof(isthmus_limits), nullptr, 0};
  ISTHMUS_RETURN_IF_ERROR(read_struct(limits, &known, "limits"));
  StopPolicy out;
  if (known.cancel != nullptr) out.token = known.cancel->source.token();
  if (known.deadline_ms > kLongestDeadlineMs) {
    return invalid_argument("limits.deadline_ms is " + std::to_string(known.deadline_ms) +
                            "; the most is 10^12");
  }
  if (known.deadline_ms > 0) {
    out.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(known.deadline_ms);
  }
  return out;
}

}  // namespace isthmus::capi
