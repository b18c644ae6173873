// Private to src/format: reading one scalar of any numeric metadata type. Pure functions, any thread; nullopt
// instead of errors.
#pragma once

#include <optional>
#include <span>
#include <type_traits>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "format/gguf.h"

namespace isthmus {

/// Calls `use` with the value at the front of `bytes` in its own C++ type; `bytes` holds it whole. Not for
/// strings, arrays and bools: those return a default R.
template <class R, class Use>
R with_gguf_number(GgufType type, std::span<const std::byte> bytes, Use use) {
  ByteReader reader(bytes);
  const auto apply = [&](auto value) { return value ? use(*value) : R(); };
  switch (type) {
    case GgufType::kU8:
      return apply(reader.read<uint8_t>());
    case GgufType::kI8:
      return apply(reader.read<int8_t>());
    case GgufType::kU16:
      return apply(reader.read<uint16_t>());
    case GgufType::kI16:
      return apply(reader.read<int16_t>());
    case GgufType::kU32:
      return apply(reader.read<uint32_t>());
    case GgufType::kI32:
      return apply(reader.read<int32_t>());
    case GgufType::kU64:
      return apply(reader.read<uint64_t>());
    case GgufType::kI64:
      return apply(reader.read<int64_t>());
    case GgufType::kF32:
      return apply(reader.read<float>());
    case GgufType::kF64:
      return apply(reader.read<double>());
    default:
      return R();
  }
}

/// An integer of any width as T; nullopt when it is none or does not fit.
template <class T>
std::optional<T> gguf_integer(GgufType type, std::span<const std::byte> bytes) {
  return with_gguf_number<std::optional<T>>(type, bytes, [](auto value) -> std::optional<T> {
    if constexpr (std::is_integral_v<decltype(value)>) return checked_cast<T>(value);
    return std::nullopt;
  });
}

/// Any number as T (float or double), rounded to nearest; nullopt when it is none.
template <class T>
std::optional<T> gguf_real(GgufType type, std::span<const std::byte> bytes) {
  return with_gguf_number<std::optional<T>>(
      type, bytes, [](auto value) -> std::optional<T> { return static_cast<T>(value); });
}

}  // namespace isthmus
