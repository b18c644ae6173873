// The one way to read bytes that come from outside: a cursor over a span that never reads past its end.
//
// All integers are little-endian. A failed read leaves the cursor where it was and returns nullopt; the
// caller turns that into a Status that names what it was reading. Not thread-safe; the span must outlive the
// reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace isthmus {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  bool at_end() const { return remaining() == 0; }

  /// Reads a trivially copyable scalar.
  template <class T>
  requires std::is_arithmetic_v<T> std::optional<T> read() {
    if (remaining() < sizeof(T)) return std::nullopt;
    T out;
    std::memcpy(&out, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return out;
  }

  /// A view of the next `n` bytes.
  std::optional<std::span<const std::byte>> take(uint64_t n) {
    if (n > remaining()) return std::nullopt;
    const auto out = bytes_.subspan(offset_, static_cast<size_t>(n));
    offset_ += static_cast<size_t>(n);
    return out;
  }

  /// The next `n` bytes as text (any bytes; no UTF-8 check).
  std::optional<std::string_view> take_text(uint64_t n) {
    const auto out = take(n);
    if (!out) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(out->data()), out->size());
  }

  /// Moves the cursor forward by `n` bytes.
  bool skip(uint64_t n) { return take(n).has_value(); }

  /// Moves the cursor to an absolute offset.
  bool seek(uint64_t offset) {
    if (offset > bytes_.size()) return false;
    offset_ = static_cast<size_t>(offset);
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
};

}  // namespace isthmus
