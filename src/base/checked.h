// Checked arithmetic for sizes and offsets that come from outside. Each returns false, or nullopt, instead of
// wrapping.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace isthmus {

template <std::integral T>
[[nodiscard]] std::optional<T> checked_add(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::integral T>
[[nodiscard]] std::optional<T> checked_mul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// `value` as To, or nullopt when it does not fit.
template <std::integral To, std::integral From>
[[nodiscard]] std::optional<To> checked_cast(From value) {
  const auto out = static_cast<To>(value);  // NOLINT(bugprone-signed-char-misuse): numbers, not characters
  if (static_cast<From>(out) != value || ((out < To{}) != (value < From{}))) return std::nullopt;
  return out;
}

/// Smallest multiple of `step` (> 0) that is >= value; nullopt on overflow.
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> checked_round_up(T value, T step) {
  const T rest = value % step;
  return rest == 0 ? std::optional<T>(value) : checked_add<T>(value, step - rest);
}

/// Unchecked round-up for our own small numbers.
template <std::integral T>
constexpr T round_up(T value, T step) {
  return (value + step - 1) / step * step;
}

}  // namespace isthmus
