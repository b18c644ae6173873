// The element types of a GGUF tensor: names, ids, block sizes.
//
// A quantised type stores a row as blocks of `block_elems` values in `block_bytes` bytes; rows are whole
// blocks. The ids are those of the GGUF specification. Types that we know by name but cannot compute with are
// listed too, so that an error can name them and a file's extent can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace isthmus {

enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct DTypeInfo {
  DType type;
  std::string_view name;  // as llama.cpp prints it: "Q4_K"
  uint32_t block_elems;   // values per block; 1 for plain types
  uint32_t block_bytes;   // bytes per block
  bool computable;        // a weight matrix of this type can be used in a model
};

/// Facts about a type id as found in a file; nullptr when the id is unknown.
const DTypeInfo* find_dtype(uint32_t id);
/// Facts about a known type.
const DTypeInfo& dtype_info(DType type);
/// The type with this name (any case), if there is one.
std::optional<DType> dtype_from_name(std::string_view name);
/// Bytes of a row of `cols` values; nullopt when cols is not a multiple of the block or the size overflows.
std::optional<uint64_t> row_bytes(DType type, uint64_t cols);

}  // namespace isthmus
