// What every function of the C API does at the border: catch, report, check arguments, copy structs of any
// age.
//
// border() runs a body that returns a Status and turns its failure, or any exception, into a code and an
// error handle; nothing else in this layer catches. Helpers that allocate for the caller use malloc, so that
// isthmus_free() can take it back from any language. Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/status.h"
#include "isthmus/isthmus.h"
#include "text/tokenizer.h"

namespace isthmus::capi {

/// Writes the error of `status` (not OK) and gives its code.
isthmus_code report(const Status& status, isthmus_error** error) noexcept;
isthmus_code report_no_memory(isthmus_error** error) noexcept;
isthmus_code report_exception(const char* what, isthmus_error** error) noexcept;

template <class Body>
isthmus_code border(isthmus_error** error, Body&& body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    const Status status = body();
    return status.ok() ? ISTHMUS_OK : report(status, error);
  } catch (const std::bad_alloc&) {
    return report_no_memory(error);
  } catch (const std::length_error&) {
    return report_no_memory(error);
  } catch (const std::exception& e) {
    return report_exception(e.what(), error);
  } catch (...) {
    return report_exception("unknown exception", error);
  }
}

/// kInvalidArgument when `pointer` is null.
Status need(const void* pointer, const char* name);

/// need() for a place that gets a result; the place is cleared.
template <class T>
Status need_out(T* place, const char* name) {
  ISTHMUS_RETURN_IF_ERROR(need(place, name));
  *place = T{};
  return ok_status();
}

/// The bytes of an input; null is fine when it is empty.
Result<std::string_view> text_of(const char* text, size_t length, const char* name);

template <class T>
Result<std::span<const T>> array_of(const T* items, size_t count, const char* name) {
  if (items == nullptr && count > 0) return need(items, name);
  if (count > PTRDIFF_MAX / sizeof(T)) {
    return invalid_argument(std::string(name) + ": " + std::to_string(count) + " items cannot be");
  }
  return std::span<const T>(items, count);
}

/// kInvalidArgument naming the first token outside [0, vocab).
Status check_tokens(std::span<const TokenId> tokens, size_t vocab, const char* name);
/// kInvalidArgument when `value` is not one of the enumeration 0 … last.
Status check_choice(int32_t value, int32_t last, const char* name);
/// kInvalidArgument when `flags` has a bit outside `known`.
Status check_flags(uint32_t flags, uint32_t known);

/// Copies for the caller, with a zero byte behind text.
void give_text(std::string_view text, char** out, size_t* length);
void give_tokens(std::span<const TokenId> tokens, isthmus_token** out, size_t* count);

/// Bytes of a struct of the border that are understood: from its struct_size. kInvalidArgument when that was
/// not set, kUnsupported when a field behind `known` bytes is not zero.
Result<size_t> understood_bytes(const void* from, size_t struct_size, size_t known, const char* name);

/// Reads a caller's struct over the defaults in `*to`; a null `from` leaves them.
template <class T>
Status read_struct(const T* from, T* to, const char* name) {
  if (from == nullptr) return ok_status();
  ISTHMUS_ASSIGN_OR_RETURN(const size_t size, understood_bytes(from, from->struct_size, sizeof(T), name));
  std::memcpy(to, from, size);
  to->struct_size = sizeof(T);
  return ok_status();
}

/// Fills a caller's struct; fields that only the caller knows become zero.
template <class T>
Status write_struct(const T& from, T* to, const char* name) {
  ISTHMUS_RETURN_IF_ERROR(need(to, name));
  const size_t size = to->struct_size;
  if (size < sizeof(size_t) || size > size_t{1} << 16) {
    return invalid_argument(std::string(name) + ".struct_size is not set");
  }
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &from, size < sizeof(T) ? size : sizeof(T));
  to->struct_size = size;
  return ok_status();
}

/// The body of an _init function.
template <class T>
void init_struct(const T& defaults, T* to, size_t struct_size) noexcept {
  if (to == nullptr || struct_size < sizeof(size_t)) return;
  std::memset(static_cast<void*>(to), 0, struct_size);
  std::memcpy(static_cast<void*>(to), &defaults, struct_size < sizeof(T) ? struct_size : sizeof(T));
  to->struct_size = struct_size;
}

/// Cancel handle and deadline, counted from now.
Result<StopPolicy> stop_policy(const isthmus_limits* limits);

}  // namespace isthmus::capi
