// Writing GGUF version 3: a header made in memory, then the tensors streamed in order, then published
// atomically.
//
//   GgufHeader header;
//   header.set("general.architecture", "llama");            // each returns a Status
//   header.add_tensor("token_embd.weight", DType::kQ4_K, dims);
//   auto writer = GgufWriter::create(files, path, header);
//   writer->append(bytes_of_the_first_tensor);              // any number of pieces per tensor
//   writer->publish();
//
// A GgufHeader is a value and owns copies of everything; a GgufWriter owns its temporary file, which vanishes
// unless it is published. Both belong to one thread at a time. What the reader would refuse is refused here:
// kInvalidArgument for bad names, dimensions and sizes, kResourceExhausted beyond a limit of gguf_limits.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "format/gguf.h"
#include "format/gguf_limits.h"
#include "os/file.h"

namespace isthmus {

/// The metadata type that a C++ type is stored as.
template <class T>
constexpr GgufType gguf_type_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufType::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufType::kU8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufType::kI8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufType::kU16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufType::kI16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufType::kU32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufType::kI32;
  if constexpr (std::is_same_v<T, float>) return GgufType::kF32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufType::kU64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufType::kI64;
  if constexpr (std::is_same_v<T, double>) return GgufType::kF64;
}

class GgufHeader {
 public:
  // ---- metadata: setting a key again replaces its value and keeps its place ----

  template <class T>
  requires std::is_arithmetic_v<T> Status set(std::string_view key, T value) {
    return set_raw(key, gguf_type_of<T>(), gguf_type_of<T>(), 1, std::as_bytes(std::span(&value, 1)));
  }
  Status set(std::string_view key, std::string_view text);
  Status set(std::string_view key, const char* text) { return set(key, std::string_view(text)); }
  template <class T>
  requires std::is_arithmetic_v<T> Status set_array(std::string_view key, std::span<const T> values) {
    return set_raw(key, GgufType::kArray, gguf_type_of<T>(), values.size(), std::as_bytes(values));
  }
  Status set_strings(std::string_view key, std::span<const std::string_view> texts);
  /// The pair as it is in `file`, type and bytes.
  Status copy(const GgufFile& file, std::string_view key);
  /// No effect on an absent key.
  void remove(std::string_view key);
  /// Sets general.alignment; the default of 32 needs no key. A power of two up to kGgufMaxAlignment.
  Status set_alignment(uint32_t alignment);

  // ---- tensors, in the order in which their bytes will come ----

  /// dims[0] is the row length; 1 to 4 dimensions.
  Status add_tensor(std::string_view name, DType type, std::span<const uint64_t> dims);

  size_t tensor_count() const { return tensors_.size(); }
  const std::string& tensor_name(size_t i) const { return tensors_[i].name; }
  uint64_t tensor_bytes(size_t i) const { return tensors_[i].bytes; }
  /// From the start of the file.
  uint64_t tensor_offset(size_t i) const { return encode().size() + tensors_[i].offset; }
  uint64_t alignment() const { return alignment_; }
  /// Everything before the tensor data, padded to the alignment.
  std::vector<std::byte> encode() const;
  /// Size of the whole file.
  uint64_t file_bytes() const;

 private:
  struct Pair {
    std::string key;
    GgufType type{};
    GgufType element{};
    uint64_t count = 1;
    std::vector<std::byte> payload;
  };
  struct Tensor {
    std::string name;
    DType type{};
    std::vector<uint64_t> dims;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // from the start of the data
  };
  Status set_raw(std::string_view key, GgufType type, GgufType element, uint64_t count,
                 std::span<const std::byte> payload);
  Status store(std::string_view key, Pair pair);

  std::vector<Pair> pairs_;
  std::vector<Tensor> tensors_;
  uint64_t alignment_ = kGgufDefaultAlignment;
  uint64_t data_end_ = 0;  // of the last tensor, unpadded, from the start of the data
};

class GgufWriter {
 public:
  /// Writes the header to a temporary beside `path`.
  static Result<GgufWriter> create(FileSystem& files, const std::string& path, GgufHeader header);

  /// The next bytes of the current tensor; a piece may not reach into the next tensor. Padding is added by
  /// itself.
  Status append(std::span<const std::byte> bytes);
  /// kFailedPrecondition when bytes of a tensor are missing.
  Status publish();
  uint64_t bytes_written() const { return file_.bytes_written(); }

 private:
  GgufWriter(GgufHeader header, AtomicFile file) : header_(std::move(header)), file_(std::move(file)) {}
  Status pad();

  GgufHeader header_;
  AtomicFile file_;
  size_t tensor_ = 0;     // the current one
  uint64_t written_ = 0;  // of it
};

}  // namespace isthmus
