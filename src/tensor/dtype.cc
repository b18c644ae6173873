#include "tensor/dtype.h"

#include <array>

#include "base/checked.h"

namespace isthmus {
namespace {

using enum DType;

constexpr std::array kTypes = {
    DTypeInfo{kF32, "F32", 1, 4, true},
    DTypeInfo{kF16, "F16", 1, 2, true},
    DTypeInfo{kQ4_0, "Q4_0", 32, 18, true},
    DTypeInfo{kQ4_1, "Q4_1", 32, 20, true},
    DTypeInfo{kQ5_0, "Q5_0", 32, 22, true},
    DTypeInfo{kQ5_1, "Q5_1", 32, 24, true},
    DTypeInfo{kQ8_0, "Q8_0", 32, 34, true},
    DTypeInfo{kQ8_1, "Q8_1", 32, 36, false},
    DTypeInfo{kQ2_K, "Q2_K", 256, 84, true},
    DTypeInfo{kQ3_K, "Q3_K", 256, 110, true},
    DTypeInfo{kQ4_K, "Q4_K", 256, 144, true},
    DTypeInfo{kQ5_K, "Q5_K", 256, 176, true},
    DTypeInfo{kQ6_K, "Q6_K", 256, 210, true},
    DTypeInfo{kQ8_K, "Q8_K", 256, 292, false},
    DTypeInfo{kIQ2_XXS, "IQ2_XXS", 256, 66, false},
    DTypeInfo{kIQ2_XS, "IQ2_XS", 256, 74, false},
    DTypeInfo{kIQ3_XXS, "IQ3_XXS", 256, 98, false},
    DTypeInfo{kIQ1_S, "IQ1_S", 256, 50, false},
    DTypeInfo{kIQ4_NL, "IQ4_NL", 32, 18, true},
    DTypeInfo{kIQ3_S, "IQ3_S", 256, 110, false},
    DTypeInfo{kIQ2_S, "IQ2_S", 256, 82, false},
    DTypeInfo{kIQ4_XS, "IQ4_XS", 256, 136, true},
    DTypeInfo{kI8, "I8", 1, 1, false},
    DTypeInfo{kI16, "I16", 1, 2, false},
    DTypeInfo{kI32, "I32", 1, 4, false},
    DTypeInfo{kI64, "I64", 1, 8, false},
    DTypeInfo{kF64, "F64", 1, 8, false},
    DTypeInfo{kIQ1_M, "IQ1_M", 256, 56, false},
    DTypeInfo{kBF16, "BF16", 1, 2, true},
    DTypeInfo{kTQ1_0, "TQ1_0", 256, 54, false},
    DTypeInfo{kTQ2_0, "TQ2_0", 256, 66, false},
    DTypeInfo{kMXFP4, "MXFP4", 32, 17, true},
    DTypeInfo{kNVFP4, "NVFP4", 64, 36, false},
    DTypeInfo{kQ1_0, "Q1_0", 128, 18, false},
    DTypeInfo{kQ2_0, "Q2_0", 64, 18, false},
};

bool same_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
    if (upper(a[i]) != upper(b[i])) return false;
  }
  return true;
}

}  // namespace

const DTypeInfo* find_dtype(uint32_t id) {
  for (const auto& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) return &info;
  }
  return nullptr;
}

const DTypeInfo& dtype_info(DType type) { return *find_dtype(static_cast<uint32_t>(type)); }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& info : kTypes) {
    if (same_ignoring_case(info.name, name)) return info.type;
  }
  return std::nullopt;
}

std::optional<uint64_t> row_bytes(DType type, uint64_t cols) {
  const auto& info = dtype_info(type);
  if (cols % info.block_elems != 0) return std::nullopt;
  return checked_mul<uint64_t>(cols / info.block_elems, info.block_bytes);
}

}  // namespace isthmus
