// Products of class `fast`: bfloat16 tiles, the processor's where it has them and modelled ones where AVX-512
// is, against sums written out here and against the exact product.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "ops/linear_test_util.h"

namespace isthmus {
namespace {

using namespace testing_linear;  // NOLINT: a test's own helpers

std::vector<Isa> bf16_isas() {
  std::vector<Isa> out;
  for (const Isa isa : testable_isas()) {
    if (have_bf16(linear_kernels_for(isa))) out.push_back(isa);
  }
  return out;
}

float round_bf16(float value) { return bf16_to_f32(f32_to_bf16(value)); }

/// A row of weights as the class has them: code * scale + min in one rounding, then bfloat16.
std::vector<float> bf16_row(DType type, const std::byte* row, size_t cols) {
  const PackFormat format = pack_format(type, Compute::kBf16).value();
  std::vector<float> w(cols);
  if (!is_quantised(format)) {
    if (!dequantize_row(type, row, cols, w.data()).ok()) std::abort();
  } else {
    const PanelLayout layout = panel_layout(format);
    const size_t group_cols = kBlockCols / static_cast<size_t>(layout.groups);
    packing::UnitRow fields;
    for (size_t k = 0; k < cols; ++k) {
      const size_t in_unit = k % layout.unit_cols();
      if (in_unit == 0) packing::decode_unit(format, row, cols, k / layout.unit_cols(), &fields);
      const GroupScales s =
          group_scales(format, fields, in_unit / kBlockCols, in_unit % kBlockCols / group_cols);
      const auto value = static_cast<float>(code_value(format, fields.codes[in_unit]));
      w[k] = layout.has_min ? std::fma(value, s.scale, s.min) : value * s.scale;
    }
  }
  for (float& value : w) value = round_bf16(value);
  return w;
}

/// One output by the order of the tile instruction: per 32 columns an even and an odd chain, their sum added.
float tile_sum(const std::vector<float>& w, const float* x, size_t cols) {
  float acc = 0;
  for (size_t block = 0; block < cols; block += kBlockCols) {
    float chain[2] = {};
    for (size_t k = block; k < std::min(cols, block + kBlockCols); ++k) {
      chain[k % 2] = std::fma(round_bf16(x[k]), w[k], chain[k % 2]);
    }
    acc += chain[0] + chain[1];
  }
  return acc;
}

std::vector<float> expected_product(DType type, const std::vector<std::byte>& src, size_t rows, size_t cols,
                                    const std::vector<float>& x, size_t tokens) {
  std::vector<float> y(tokens * rows);
  for (size_t r = 0; r < rows; ++r) {
    const auto w = bf16_row(type, src.data() + r * row_bytes(type, cols).value(), cols);
    for (size_t t = 0; t < tokens; ++t) y[t * rows + r] = tile_sum(w, x.data() + t * cols, cols);
  }
  return y;
}

void expect_bf16(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << what << " at " << i;
  }
}

class Bf16Product : public testing::TestWithParam<DType> {};

TEST_P(Bf16Product, EqualsTheSumsWrittenOut) {
  const DType type = GetParam();
  ThreadPool pool(2, false);
  for (const auto& [rows, cols, tokens] : {std::array<size_t, 3>{1, 32, 1},
                                           {15, 64, 2},
                                           {16, 96, 16},
                                           {17, 576, 17},
                                           {48, 256, 31},
                                           {150, 512, 40}}) {
    if (!row_bytes(type, cols)) continue;
    const auto src = random_rows(type, rows, cols, static_cast<uint32_t>(cols));
    const auto x = random_floats(tokens * cols, 7);
    const auto packed = pack(type, src, rows, cols, Compute::kInt16);
    const auto want = expected_product(type, src, rows, cols, x, tokens);
    for (const Isa isa : bf16_isas()) {
      expect_bf16(run_product(packed.matrix, x, tokens, Compute::kBf16, isa, pool), want,
                  std::to_string(rows) + "x" + std::to_string(cols) + " tokens " + std::to_string(tokens));
    }
  }
}

TEST_P(Bf16Product, IsNearTheExactProduct) {
  const DType type = GetParam();
  const size_t rows = 48;
  const size_t cols = 1536;
  const size_t tokens = 20;
  const auto src = random_rows(type, rows, cols, 11);
  const auto x = random_floats(tokens * cols, 12);
  const auto packed = pack(type, src, rows, cols, Compute::kInt16);
  ThreadPool pool(1, false);
  for (const Isa isa : bf16_isas()) {
    const auto y = run_product(packed.matrix, x, tokens, Compute::kBf16, isa, pool);
    double error = 0;
    double norm = 0;
    std::vector<float> w(cols);
    for (size_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(dequantize_row(type, src.data() + r * row_bytes(type, cols).value(), cols, w.data()).ok());
      for (size_t t = 0; t < tokens; ++t) {
        double exact = 0;
        for (size_t k = 0; k < cols; ++k) exact += double{w[k]} * double{x[t * cols + k]};
        error += (y[t * rows + r] - exact) * (y[t * rows + r] - exact);
        norm += exact * exact;
      }
    }
    EXPECT_LE(std::sqrt(error / norm), 3e-3) << dtype_info(type).name;
  }
}

TEST_P(Bf16Product, SplitsAndThreadsChangeNothing) {
  const DType type = GetParam();
  const size_t rows = 100;
  const size_t cols = 256;
  const size_t tokens = 37;
  const auto src = random_rows(type, rows, cols, 3);
  const auto x = random_floats(tokens * cols, 4);
  const auto packed = pack(type, src, rows, cols, Compute::kInt16);
  for (const Isa isa : bf16_isas()) {
    ThreadPool one(1, false);
    const auto want = run_product(packed.matrix, x, tokens, Compute::kBf16, isa, one);
    for (const size_t threads : {2, 3, 7}) {
      ThreadPool pool(threads, false);
      expect_bf16(run_product(packed.matrix, x, tokens, Compute::kBf16, isa, pool), want, "threads");
    }
    for (const size_t step : {1, 5, 16, 20, 36}) {
      std::vector<float> parts;
      for (size_t t = 0; t < tokens; t += step) {
        const size_t n = std::min(step, tokens - t);
        const std::vector<float> some(x.begin() + static_cast<ptrdiff_t>(t * cols),
                                      x.begin() + static_cast<ptrdiff_t>((t + n) * cols));
        const auto y = run_product(packed.matrix, some, n, Compute::kBf16, isa, one);
        parts.insert(parts.end(), y.begin(), y.end());
      }
      expect_bf16(parts, want, "steps of " + std::to_string(step));
    }
  }
}

// Scales and activations that are zero, subnormal, huge, infinite or NaN: no crash, and no token or row but
// its own is touched.
TEST_P(Bf16Product, OddValuesStayWhereTheyAre) {
  const DType type = GetParam();
  const size_t rows = 17;
  const size_t cols = 256;
  const size_t tokens = 20;
  ThreadPool pool(1, false);
  const auto src = random_rows(type, rows, cols, 31);
  auto x = random_floats(tokens * cols, 32);
  const auto plain = x;
  for (size_t i = 0; i < cols; ++i) x[2 * cols + i] *= 1e-38F;
  for (size_t i = 0; i < cols; ++i) x[3 * cols + i] *= 1e30F;
  x[4 * cols + 40] = std::numeric_limits<float>::infinity();
  x[5 * cols + 200] = std::bit_cast<float>(0x7fffffffU);  // a NaN that rounding up would make a zero
  const auto packed = pack(type, src, rows, cols, Compute::kInt16);
  for (const Isa isa : bf16_isas()) {
    const auto got = run_product(packed.matrix, x, tokens, Compute::kBf16, isa, pool);
    const auto usual = run_product(packed.matrix, plain, tokens, Compute::kBf16, isa, pool);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t r = 0; r < rows; ++r) {
        const float value = got[t * rows + r];
        if (t == 4) {
          EXPECT_FALSE(std::isfinite(value));
        } else if (t == 5) {
          EXPECT_TRUE(std::isnan(value));
        } else if (t != 2 && t != 3) {
          EXPECT_EQ(value, usual[t * rows + r]) << t << " " << r;
        } else {
          EXPECT_TRUE(std::isfinite(value));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, Bf16Product, testing::ValuesIn(kAllTypes),
                         [](const auto& param) { return std::string(dtype_info(param.param).name); });

TEST(Bf16, NanScalesMakeNanWeights) {
  std::vector<std::byte> src = random_rows(DType::kQ4_0, 16, 64, 1);
  const uint16_t nan = 0x7fff;  // as a float32 it would round up past all bits
  std::memcpy(src.data(), &nan, sizeof(nan));
  const auto packed = pack(DType::kQ4_0, src, 16, 64, Compute::kInt16);
  const auto x = random_floats(16 * 64, 2);
  ThreadPool pool(1, false);
  for (const Isa isa : bf16_isas()) {
    const auto y = run_product(packed.matrix, x, 16, Compute::kBf16, isa, pool);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % 16 == 0) << i;
  }
}

TEST(Bf16, RowsTooWideForTheScratchGiveTheSameBits) {
  const size_t cols = 26 * 1024;  // an expanded panel is larger than kLinearScratchBytes
  const size_t rows = 18;
  const size_t tokens = 35;
  const auto src = random_rows(DType::kQ4_0, rows, cols, 2);
  const auto packed = pack(DType::kQ4_0, src, rows, cols, Compute::kInt16);
  const auto x = random_floats(tokens * cols, 3);
  const auto want = expected_product(DType::kQ4_0, src, rows, cols, x, tokens);
  ThreadPool pool(1, false);
  for (const Isa isa : bf16_isas()) {
    expect_bf16(run_product(packed.matrix, x, tokens, Compute::kBf16, isa, pool), want, "wide rows");
  }
}

TEST(Bf16, GatedEqualsItsTwoProducts) {
  const size_t cols = 576;
  const size_t rows = 90;
  const size_t tokens = 21;
  const auto gate = pack(DType::kQ4_1, random_rows(DType::kQ4_1, rows, cols, 2), rows, cols, Compute::kInt16);
  const auto up = pack(DType::kF16, random_rows(DType::kF16, rows, cols, 3), rows, cols, Compute::kInt16);
  const auto x = random_floats(tokens * cols, 8, 0.2F);
  ThreadPool pool(3, false);
  for (const Isa isa : bf16_isas()) {
    const LinearKernels& kernels = linear_kernels_for(isa);
    auto want = run_product(gate.matrix, x, tokens, Compute::kBf16, isa, pool);
    const auto factor = run_product(up.matrix, x, tokens, Compute::kBf16, isa, pool);
    float_kernels_for(isa).gate_mul(Gate::kSilu, want.data(), factor.data(), want.data(), want.size());
    AlignedBytes memory(Activations::bytes(tokens, cols, Compute::kBf16, kernels));
    const Activations acts(x.data(), cols, tokens, cols, Compute::kBf16, memory.data(), kernels);
    std::vector<float> y(tokens * rows);
    pool.run([&](Worker& worker) {
      const auto [first, last] = worker.range(tokens);
      quantize_activations(acts, first, last);
      worker.barrier();
      linear_gated(gate.matrix, up.matrix, Gate::kSilu, acts, y.data(), rows, worker);
    });
    expect_bf16(y, want, "gated");
  }
}

TEST(Bf16, OnlySetsWithTilesHaveIt) {
  for (const Isa isa : testable_isas()) {
    const LinearKernels& kernels = linear_kernels_for(isa);
    EXPECT_EQ(have_bf16(kernels), kernels.strip_tokens == kStripTokens) << isa_name(isa);
    EXPECT_EQ(kernels.round_bf16 != nullptr, have_bf16(kernels));
    for (const ExpandKernel expand : kernels.expand) EXPECT_EQ(expand != nullptr, have_bf16(kernels));
  }
}

}  // namespace
}  // namespace isthmus
