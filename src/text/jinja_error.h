// How the template interpreter reports failure inside itself.
//
// A TemplateError travels as an exception between the jinja_* files only; ChatTemplate catches it (and
// std::bad_alloc) and returns a Status, so none leaves this layer. Budget counts what one render may still
// use; every function whose work grows with its input charges it first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace isthmus::jinja {

/// The parts as one string.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (out.append(std::string_view(parts)), ...);
  return out;
}

/// Byte offset into the (newline-normalised) template source; turned into line and column when reported.
using Offset = uint32_t;
inline constexpr Offset kNowhere = 0xFFFFFFFFU;

struct TemplateError {
  Code code;
  std::string message;
  Offset at = kNowhere;
};

[[noreturn]] inline void fail(Code code, std::string message, Offset at = kNowhere) {
  throw TemplateError{code, std::move(message), at};
}
/// A Python TypeError, ValueError, UndefinedError …: the template or its data is wrong.
[[noreturn]] inline void fail_value(std::string message) { fail(Code::kInvalidArgument, std::move(message)); }

/// Units of 64 bytes copied cost one step, so memory and time of one render are bounded by the step limit
/// alone.
inline constexpr uint64_t kBytesPerStep = 64;
/// Names compared in a linear search cost one step per so many.
inline constexpr uint64_t kNamesPerStep = 32;
/// Arguments of one call and parameters of one macro.
inline constexpr size_t kMaxArguments = 1000;
/// Nesting of lists and dicts, in the context and as built by the template.
inline constexpr uint32_t kMaxDataDepth = 100;

class Budget {
 public:
  Budget(uint64_t steps, uint64_t max_bytes) : steps_left_(steps), max_bytes_(max_bytes) {}

  void charge(uint64_t steps = 1) {
    if (steps > steps_left_) {
      fail(Code::kResourceExhausted, "the template needs more steps than the limit allows");
    }
    steps_left_ -= steps;
  }
  /// Checks a string length against the limit and charges for writing it.
  void charge_bytes(uint64_t bytes) {
    check_size(bytes);
    charge(bytes / kBytesPerStep);
  }
  void check_size(uint64_t bytes) const {
    if (bytes > max_bytes_) {
      fail(Code::kResourceExhausted,
           "text of the template is longer than the limit of " + std::to_string(max_bytes_) + " bytes");
    }
  }
  uint64_t max_bytes() const { return max_bytes_; }

 private:
  uint64_t steps_left_;
  uint64_t max_bytes_;
};

/// A growing string that never exceeds the budget's size limit.
class Sink {
 public:
  explicit Sink(Budget& budget) : budget_(budget) {}
  void put(std::string_view text) {
    budget_.check_size(text_.size() + text.size());
    pending_ += text.size();
    if (pending_ >= kBytesPerStep) {
      budget_.charge(pending_ / kBytesPerStep);
      pending_ %= kBytesPerStep;
    }
    text_.append(text);
  }
  void put(char c) { put(std::string_view(&c, 1)); }
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }
  Budget& budget() { return budget_; }

 private:
  Budget& budget_;
  std::string text_;
  uint64_t pending_ = 0;
};

}  // namespace isthmus::jinja
