#include "base/digest.h"

namespace isthmus {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

std::string hex_of(const Digest& digest) {
  std::string out;
  out.reserve(2 * digest.size());
  for (const std::byte byte : digest) {
    out += kHexDigits[std::to_integer<size_t>(byte >> 4)];
    out += kHexDigits[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return out;
}

std::optional<Digest> digest_from_hex(std::string_view text) {
  Digest out{};
  if (text.size() != 2 * out.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = kHexDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    out[i / 2] = (out[i / 2] << 4) | static_cast<std::byte>(digit);
  }
  return out;
}

}  // namespace isthmus
