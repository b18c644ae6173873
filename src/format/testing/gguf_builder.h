// For tests and fuzz seeds only: builds GGUF files byte by byte, broken ones included.
//
// Unlike GgufWriter it checks nothing. Every integer field that a file is made of is remembered with its
// place and width, so that a test can overwrite any of them. Pieces are appended in file order: preamble,
// pairs, tensor infos, data. Not thread-safe, no errors.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace isthmus::testing {

class GgufBuilder {
 public:
  struct Field {
    std::string name;
    size_t offset = 0;
    size_t bytes = 0;  // 4 or 8
  };

  /// Room from the start: g++ 12 warns of an overflow where the first insertion allocates.
  GgufBuilder() { bytes_.reserve(4096); }

  GgufBuilder& preamble(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    text("GGUF");
    field("version", version);
    field("tensor count", tensors);
    return field("key count", keys);
  }

  /// A pair with a scalar value of any trivially copyable type.
  template <class T>
  GgufBuilder& pair(std::string_view key, GgufType type, T value) {
    head(key, type);
    return scalar(value);
  }
  GgufBuilder& pair(std::string_view key, std::string_view value) {
    head(key, GgufType::kString);
    return string(value);
  }
  template <class T>
  GgufBuilder& array(std::string_view key, GgufType element, std::initializer_list<T> values) {
    array_head(key, element, values.size());
    for (const T& value : values) scalar(value);
    return *this;
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    array_head(key, GgufType::kString, values.size());
    for (const auto& value : values) string(value);
    return *this;
  }
  GgufBuilder& array_head(std::string_view key, GgufType element, uint64_t count) {
    head(key, GgufType::kArray);
    field(fmt::format("{} element type", key), static_cast<uint32_t>(element));
    return field(fmt::format("{} array length", key), count);
  }

  GgufBuilder& tensor(std::string_view name, DType type, std::initializer_list<uint64_t> dims,
                      uint64_t offset) {
    string(name);
    field(fmt::format("{} n_dims", name), static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) field(fmt::format("{} dim", name), dim);
    field(fmt::format("{} type", name), static_cast<uint32_t>(type));
    return field(fmt::format("{} offset", name), offset);
  }

  /// Pads to the alignment and appends `n` bytes of tensor data, value i being i modulo 251.
  GgufBuilder& data(size_t n, size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    for (size_t i = 0; i < n; ++i) bytes_.push_back(static_cast<std::byte>(i % 251));
    return *this;
  }

  // ---- pieces ----
  GgufBuilder& head(std::string_view key, GgufType type) {
    string(key);
    return field(fmt::format("{} type", key), static_cast<uint32_t>(type));
  }
  GgufBuilder& string(std::string_view value) {
    field(fmt::format("length of {}", value.substr(0, 20)), static_cast<uint64_t>(value.size()));
    return text(value);
  }
  template <class T>
  GgufBuilder& field(std::string name, T value) {
    fields_.push_back({std::move(name), bytes_.size(), sizeof(T)});
    return scalar(value);
  }
  template <class T>
  GgufBuilder& scalar(T value) {
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  GgufBuilder& text(std::string_view value) {
    const auto raw = std::as_bytes(std::span(value));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    return *this;
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<Field> fields_;
};

/// A copy of `bytes` with `value` (cut to the field's width) in place of a field.
inline std::vector<std::byte> with_field(std::vector<std::byte> bytes, const GgufBuilder::Field& field,
                                         uint64_t value) {
  std::memcpy(bytes.data() + field.offset, &value, field.bytes);  // little-endian hosts only, as the product
  return bytes;
}

/// A small whole file: pairs of several kinds and three tensors (F32 4x2, Q4_0 64, Q8_0 32x2).
inline GgufBuilder small_gguf() {
  GgufBuilder builder;
  builder.preamble(3, 8)
      .pair("general.architecture", "llama")
      .pair<uint32_t>("llama.block_count", GgufType::kU32, 2)
      .pair<float>("llama.rope.freq_base", GgufType::kF32, 10000.0f)
      .pair<uint8_t>("tokenizer.ggml.add_bos_token", GgufType::kBool, 1)
      .strings("tokenizer.ggml.tokens", {"<s>", "a", "", "\xff\xfe"})
      .array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {3, 1, 1, 6})
      .array<float>("tokenizer.ggml.scores", GgufType::kF32, {0.0f, -1.0f, -2.0f, -3.5f})
      .pair<uint32_t>("general.alignment", GgufType::kU32, 32)
      .tensor("token_embd.weight", DType::kF32, {4, 2}, 0)
      .tensor("blk.0.attn_q.weight", DType::kQ4_0, {64}, 32)
      .tensor("output.weight", DType::kQ8_0, {32, 2}, 96)
      .data(96 + 68);
  return builder;
}

}  // namespace isthmus::testing
