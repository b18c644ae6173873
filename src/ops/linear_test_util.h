// Test helpers of the matrix products: random GGUF rows, and the reference that does the same arithmetic in
// plain scalar code straight from the blocks of a file.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/linear_kernels.h"
#include "ops/linear.h"
#include "ops/linear_codes.h"
#include "tensor/half.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace isthmus::testing_linear {

inline constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,
                                      DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                                      DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                                      DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
inline constexpr Compute kIntComputes[] = {Compute::kInt8, Compute::kInt16};

inline std::vector<Isa> tested_isas() { return testable_isas(); }

/// Zeroed bytes at a 64-byte boundary.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t n)
      : size_(n), data_(static_cast<std::byte*>(std::aligned_alloc(64, (n + 127) / 64 * 64)), std::free) {
    std::memset(data_.get(), 0, size_);
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  size_t size_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

/// Offsets of the f16 fields in a block.
inline std::vector<size_t> half_fields(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kMXFP4:
      return {};
    default:
      return {0};
  }
}

/// A matrix as it lies in a file, with random codes and scales of a usual size.
inline std::vector<std::byte> random_rows(DType type, size_t rows, size_t cols, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<std::byte> bytes(rows * row_bytes(type, cols).value());
  for (auto& b : bytes) b = static_cast<std::byte>(rng());
  std::normal_distribution<float> normal(0.0f, 0.05f);
  const auto& info = dtype_info(type);
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    const float value = normal(rng);
    const uint16_t half = type == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
    if (type == DType::kF32) {
      std::memcpy(&bytes[at], &value, 4);
    } else if (type == DType::kMXFP4) {
      bytes[at] = static_cast<std::byte>(118 + rng() % 10);
    } else {
      for (const size_t field : half_fields(type)) {
        const uint16_t bits = static_cast<uint16_t>(half ^ (rng() & 0x1ff));
        std::memcpy(&bytes[at + field], &bits, 2);
      }
    }
  }
  return bytes;
}

inline std::vector<float> random_floats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(n);
  for (auto& v : out) v = normal(rng);
  return out;
}

struct Packed {
  AlignedBytes bytes;
  PackedMatrix matrix;
};

inline Packed pack(DType type, const std::vector<std::byte>& src, size_t rows, size_t cols, Compute compute) {
  Packed out{AlignedBytes(packed_bytes(type, rows, cols, compute).value()), {}};
  const auto status =
      pack_panels(type, src.data(), rows, cols, compute, 0, panel_count(rows), out.bytes.data());
  if (!status.ok()) std::abort();
  out.matrix = {pack_format(type, compute).value(), rows, cols, out.bytes.data()};
  return out;
}

/// A block of 32 activations after quantisation.
struct QuantBlock {
  float scale;
  int32_t q[32];
};

inline QuantBlock quantise_block(const float* x, size_t count, Compute compute) {
  QuantBlock out{};
  float largest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) {
      out.scale = NAN;
      return out;
    }
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (largest < 0x1p-100f) return out;
  out.scale = largest / (compute == Compute::kInt16 ? 32512.0f : 127.0f);
  const float inverse = 1.0f / out.scale;
  for (size_t i = 0; i < count; ++i) out.q[i] = static_cast<int32_t>(std::nearbyintf(x[i] * inverse));
  return out;
}

/// value = code - zero, or by table.
inline int code_value(PackFormat format, uint8_t code) {
  const PanelLayout layout = panel_layout(format);
  if (layout.table == CodeTable::kIq4) return kIq4Values[code];
  if (layout.table == CodeTable::kMxfp4) return kMxfp4Values[code];
  return layout.zero_shift < 0 ? code : code - (1 << layout.zero_shift);
}

struct GroupScales {
  float scale;
  float min;
};

inline GroupScales group_scales(PackFormat format, const packing::UnitRow& row, size_t block, size_t group) {
  const PanelLayout layout = panel_layout(format);
  const size_t index = block * static_cast<size_t>(layout.groups) + group;
  const float d = f16_to_f32(row.half[0]);
  const float dmin = f16_to_f32(row.min[0]);
  switch (layout.scale) {
    case ScaleKind::kHalf:
      return {f16_to_f32(row.half[block]), f16_to_f32(row.min[block])};
    case ScaleKind::kE8m0:
      return {std::ldexp(1.0f, row.scale[block] - 128), 0.0f};
    case ScaleKind::kSuperUnsigned:
      return {d * row.scale[index], -(dmin * row.group_min[block])};
    case ScaleKind::kSuperSigned:
      return {d * static_cast<float>(static_cast<int8_t>(row.scale[index])), 0.0f};
    case ScaleKind::kSuperNibble:
      return {d * static_cast<float>(row.scale[index] & 15),
              -(dmin * static_cast<float>(row.scale[index] >> 4))};
    case ScaleKind::kFloat:
      break;
  }
  return {};
}

/// The contract of ops/linear.h for one output of a quantised type: `row` is a row of the file.
inline float reference_dot(PackFormat format, const std::byte* row, size_t cols, const float* x,
                           Compute compute) {
  const PanelLayout layout = panel_layout(format);
  const size_t groups = static_cast<size_t>(layout.groups);
  const size_t group_cols = 32 / groups;
  float acc = 0.0f;
  for (size_t unit = 0; unit < panel_units(format, cols); ++unit) {
    packing::UnitRow fields;
    packing::decode_unit(format, row, cols, unit, &fields);
    for (size_t b = 0; b < static_cast<size_t>(layout.unit_blocks); ++b) {
      const size_t col = unit * layout.unit_cols() + b * 32;
      if (col >= cols) break;
      const QuantBlock block = quantise_block(x + col, 32, compute);
      for (size_t g = 0; g < groups; ++g) {
        int64_t sum = 0;
        int32_t x_sum = 0;
        for (size_t i = g * group_cols; i < (g + 1) * group_cols; ++i) {
          sum += int64_t{code_value(format, fields.codes[b * 32 + i])} * block.q[i];
          x_sum += block.q[i];
        }
        const GroupScales s = group_scales(format, fields, b, g);
        acc = std::fma(static_cast<float>(sum), s.scale * block.scale, acc);
        if (layout.has_min) acc = std::fma(s.min, block.scale * static_cast<float>(x_sum), acc);
      }
    }
  }
  return acc;
}

/// The same for any type: plain types and kF32 by one fma chain.
inline std::vector<float> reference_product(DType type, const std::vector<std::byte>& src, size_t rows,
                                            size_t cols, const std::vector<float>& x, size_t tokens,
                                            Compute compute) {
  const PackFormat format = pack_format(type, compute).value();
  const size_t stride = row_bytes(type, cols).value();
  std::vector<float> y(tokens * rows);
  std::vector<float> w(cols);
  for (size_t r = 0; r < rows; ++r) {
    const std::byte* row = src.data() + r * stride;
    if (!dequantize_row(type, row, cols, w.data()).ok()) std::abort();
    for (size_t t = 0; t < tokens; ++t) {
      const float* xt = x.data() + t * cols;
      if (is_quantised(format)) {
        y[t * rows + r] = reference_dot(format, row, cols, xt, compute);
        continue;
      }
      float acc = 0.0f;
      for (size_t k = 0; k < cols; ++k) acc = std::fma(w[k], xt[k], acc);
      y[t * rows + r] = acc;
    }
  }
  return y;
}

/// The product by the kernels of `isa` on a pool.
inline std::vector<float> run_product(const PackedMatrix& w, const std::vector<float>& x, size_t tokens,
                                      Compute compute, Isa isa, ThreadPool& pool) {
  const LinearKernels& kernels = linear_kernels_for(isa);
  AlignedBytes memory(Activations::bytes(tokens, w.cols, compute, kernels));
  const Activations acts(x.data(), w.cols, tokens, w.cols, compute, memory.data(), kernels);
  std::vector<float> y(tokens * w.rows, -1.0f);
  pool.run([&](Worker& worker) {
    const auto [first, last] = worker.range(tokens);
    quantize_activations(acts, first, last);
    worker.barrier();
    const LinearTask task{&w, y.data(), w.rows};
    linear({&task, 1}, acts, worker);
  });
  return y;
}

}  // namespace isthmus::testing_linear
