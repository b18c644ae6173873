// Reading GGUF v2 and v3: the file is mapped, its header parsed into typed metadata and tensor views.
//
// Model files are untrusted. Every count, length, dimension, offset and extent is checked before it is used;
// a bad file gives a Status that names the file, the key or tensor and the offset. A model may be split into
// parts
// ("name-00001-of-00003.gguf"); opening any part's path opens all. A GgufFile is immutable after opening and
// may be read from any thread; views live as long as it does. Limits are in gguf_limits.h, the format's page
// is docs/formats/gguf.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/mmap.h"
#include "tensor/dtype.h"

namespace isthmus {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u32", "string", "array".
std::string_view gguf_type_name(GgufType type);

/// One tensor: `dims[0]` is the row length (columns), dims[1] the number of rows; unused dims are 1. `data`
/// holds dims[1] * dims[2] * dims[3] rows of row_bytes(type, dims[0]) bytes, inside the mapped file.
struct GgufTensor {
  std::string name;
  DType type{};
  uint32_t n_dims = 0;
  std::array<uint64_t, 4> dims{1, 1, 1, 1};
  std::span<const std::byte> data;
  uint32_t part = 0;         // which file of a split model
  uint64_t file_offset = 0;  // of data, in that file

  uint64_t cols() const { return dims[0]; }
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
};

/// What a file of a model was when it was opened.
struct GgufPartFacts {
  FileIdentity identity;
  std::span<const std::byte> head;  // what stands before the first tensor's data
};

class GgufFile {
 public:
  /// Opens and checks `path` (and its sister parts). kNotFound, kIo, kCorrupt, kUnsupported (version 1,
  /// big-endian, unknown tensor types, arrays of arrays) or kResourceExhausted (a limit).
  static Result<GgufFile> open(const std::string& path);
  /// The same over bytes in memory (tests, fuzzing); they must outlive the file. One part of a split model is
  /// refused.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& label);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  uint32_t version() const;
  const std::vector<std::string>& paths() const;  // one per part
  uint64_t file_bytes() const;                    // sum over parts
  /// One per part; none when the bytes are in memory.
  std::vector<GgufPartFacts> part_facts() const;

  // ---- metadata ----
  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;  // in file order
  /// Type of a value; for an array, the element type is in `element`.
  Result<GgufType> type_of(std::string_view key, GgufType* element = nullptr) const;
  /// Number of elements of an array; 1 for any other value.
  Result<uint64_t> count_of(std::string_view key) const;
  /// The value's bytes as stored: a scalar; a length and text; or the elements of an array one after another.
  Result<std::span<const std::byte>> raw(std::string_view key) const;

  // Typed getters. kNotFound names the key; a value of another kind is kCorrupt and names both types.
  // Integers of any width are accepted where the value fits.
  Result<uint64_t> get_uint(std::string_view key) const;
  Result<int64_t> get_int(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;  // integers are accepted too
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<int64_t>> get_ints(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;  // f64 is rounded, integers are accepted

  // The same with a default for an absent key; a present value of the wrong kind is still an error.
  Result<uint64_t> get_uint_or(std::string_view key, uint64_t fallback) const;
  Result<double> get_float_or(std::string_view key, double fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;

  // ---- tensors ----
  const std::vector<GgufTensor>& tensors() const;
  const GgufTensor* find(std::string_view name) const;  // nullptr when absent
  Result<const GgufTensor*> tensor(std::string_view name) const;

  /// Tells the kernel that mapped bytes [offset, offset + length) of this tensor are not needed any more
  /// (after packing). What is read later comes back.
  void release_pages(const GgufTensor& tensor, uint64_t offset, uint64_t length) const;
  /// The same for everything that was read so far, metadata included.
  void release_pages() const;
  /// Copies bytes [offset, offset + out.size()) of a tensor without making the mapping's pages resident: for
  /// few rows of a large table. kCorrupt when the file was truncated meanwhile.
  Status read(const GgufTensor& tensor, uint64_t offset, std::span<std::byte> out) const;
  /// OK when all that was read so far through views (metadata, tensor data) was the file; kCorrupt, naming
  /// the file, when it was truncated while in use: then what was read may be zeros.
  Status intact() const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus
