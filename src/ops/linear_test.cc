#include "ops/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "ops/linear_streams.h"
#include "ops/linear_test_util.h"

namespace isthmus {
namespace {

using namespace testing_linear;  // NOLINT: a test's own helpers

/// Equal bit for bit, any NaN equal to any other.
void expect_same(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << " at " << i << ": " << got[i] << " against " << want[i];
  }
}

std::string label(DType type, size_t rows, size_t cols, size_t tokens, Compute compute, Isa isa) {
  return std::string(dtype_info(type).name) + " " + std::to_string(rows) + "x" + std::to_string(cols) +
         " tokens " + std::to_string(tokens) + " compute " + std::to_string(static_cast<int>(compute)) + " " +
         std::string(isa_name(isa));
}

TEST(LinearPack, UnpackedRowsEqualTheOracleBitForBit) {
  for (const DType type : kAllTypes) {
    for (const size_t cols : {32, 64, 96, 256, 576, 768}) {
      if (!row_bytes(type, cols)) continue;
      for (const size_t rows : {1, 15, 16, 17, 48}) {
        for (const Compute compute : {Compute::kInt8, Compute::kF32}) {
          const auto src = random_rows(type, rows, cols, static_cast<uint32_t>(rows + cols));
          const auto packed = pack(type, src, rows, cols, compute);
          std::vector<float> want(cols);
          std::vector<float> got(cols);
          for (size_t r = 0; r < rows; ++r) {
            ASSERT_TRUE(
                dequantize_row(type, src.data() + r * row_bytes(type, cols).value(), cols, want.data()).ok());
            unpack_row(packed.matrix, r, got.data());
            expect_same(got, want, label(type, rows, cols, 0, compute, Isa::kScalar));
          }
        }
      }
    }
  }
}

TEST(LinearPack, AnySplitOverPanelsGivesTheSameBytes) {
  const size_t rows = 70;
  for (const DType type : kAllTypes) {
    const size_t cols = 512;
    const auto src = random_rows(type, rows, cols, 5);
    const auto whole = pack(type, src, rows, cols, Compute::kInt8);
    AlignedBytes parts(whole.bytes.size());
    const size_t stride = row_bytes(type, cols).value();
    for (const auto& [first, last] : {std::pair{3, 5}, std::pair{0, 1}, std::pair{1, 3}}) {
      const std::byte* from = src.data() + static_cast<size_t>(first) * kPanelRows * stride;
      ASSERT_TRUE(pack_panels(type, from, rows, cols, Compute::kInt8, static_cast<size_t>(first),
                              static_cast<size_t>(last), parts.data())
                      .ok());
    }
    EXPECT_EQ(std::memcmp(parts.data(), whole.bytes.data(), whole.bytes.size()), 0) << dtype_info(type).name;
  }
}

TEST(LinearPack, SizesStayNearTheFile) {
  for (const DType type : kAllTypes) {
    const size_t rows = 1024;
    const size_t cols = 2048;
    const auto file = static_cast<double>(rows * row_bytes(type, cols).value());
    const auto ours = static_cast<double>(packed_bytes(type, rows, cols, Compute::kInt16).value());
    // Q3_K keeps its 6-bit scales in bytes: 96 bytes on 1760.
    EXPECT_LE(ours / file, type == DType::kQ3_K ? 1.055 : 1.03) << dtype_info(type).name;
    EXPECT_GE(ours / file, 1.0) << dtype_info(type).name;
  }
}

TEST(LinearPack, ErrorsNameWhatIsWrong) {
  const auto unknown = packed_bytes(DType::kIQ2_XXS, 16, 256, Compute::kInt8);
  EXPECT_EQ(unknown.status().code(), Code::kUnsupported);
  EXPECT_NE(unknown.status().message().find("IQ2_XXS"), std::string::npos);
  EXPECT_EQ(packed_bytes(DType::kQ4_K, 16, 96, Compute::kInt8).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(packed_bytes(DType::kQ4_0, SIZE_MAX / 4, 1u << 20, Compute::kInt8).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(packed_bytes(DType::kF32, 16, SIZE_MAX, Compute::kF32).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(packed_bytes(DType::kQ4_0, 0, 64, Compute::kInt8).value(), 0u);
  std::byte none[1];
  EXPECT_EQ(pack_panels(DType::kQ4_0, none, 16, 64, Compute::kInt8, 0, 2, none).code(),
            Code::kInvalidArgument);
}

struct Shape {
  size_t rows;
  size_t cols;
  size_t tokens;
};

class LinearProduct : public testing::TestWithParam<DType> {};

// Every instruction set equals the plain reference, bit for bit, for odd shapes and all kinds of batch.
TEST_P(LinearProduct, EqualsTheReferenceBitForBit) {
  const DType type = GetParam();
  constexpr Shape kShapes[] = {{1, 32, 1},   {15, 64, 2},   {16, 96, 3},    {17, 576, 4},
                               {48, 640, 5}, {48, 896, 8},  {17, 256, 9},   {16, 1536, 7},
                               {33, 768, 6}, {48, 512, 33}, {16, 4864, 16}, {17, 8960, 3}};
  ThreadPool pool(2, false);
  for (const Shape& shape : kShapes) {
    if (!row_bytes(type, shape.cols)) continue;
    const auto src = random_rows(type, shape.rows, shape.cols, static_cast<uint32_t>(shape.cols));
    const auto x = random_floats(shape.tokens * shape.cols, 7);
    for (const Compute compute : {Compute::kInt8, Compute::kInt16, Compute::kF32}) {
      if (compute == Compute::kF32 && shape.cols > 1024) continue;
      const auto want = reference_product(type, src, shape.rows, shape.cols, x, shape.tokens, compute);
      const auto packed = pack(type, src, shape.rows, shape.cols, compute);
      for (const Isa isa : tested_isas()) {
        const auto got = run_product(packed.matrix, x, shape.tokens, compute, isa, pool);
        expect_same(got, want, label(type, shape.rows, shape.cols, shape.tokens, compute, isa));
      }
    }
  }
}

TEST_P(LinearProduct, BatchAndThreadsChangeNothing) {
  const DType type = GetParam();
  const size_t rows = 100;
  const size_t cols = 512;
  const size_t tokens = 33;
  const auto src = random_rows(type, rows, cols, 3);
  const auto x = random_floats(tokens * cols, 4);
  ThreadPool one(1, false);
  for (const Compute compute : kIntComputes) {
    const auto packed = pack(type, src, rows, cols, compute);
    const Isa isa = tested_isas().back();
    std::vector<float> singly;
    for (size_t t = 0; t < tokens; ++t) {
      const std::vector<float> row(x.begin() + static_cast<ptrdiff_t>(t * cols),
                                   x.begin() + static_cast<ptrdiff_t>((t + 1) * cols));
      const auto y = run_product(packed.matrix, row, 1, compute, isa, one);
      singly.insert(singly.end(), y.begin(), y.end());
    }
    for (size_t n = 1; n <= tokens; ++n) {
      const std::vector<float> part(x.begin(), x.begin() + static_cast<ptrdiff_t>(n * cols));
      const std::vector<float> want(singly.begin(), singly.begin() + static_cast<ptrdiff_t>(n * rows));
      const auto got = run_product(packed.matrix, part, n, compute, isa, one);
      expect_same(got, want, label(type, rows, cols, n, compute, isa));
    }
    for (const size_t threads : {2, 3, 7}) {
      ThreadPool pool(threads, false);
      expect_same(run_product(packed.matrix, x, tokens, compute, isa, pool), singly,
                  label(type, rows, cols, tokens, compute, isa) + " threads " + std::to_string(threads));
    }
  }
}

TEST_P(LinearProduct, IsNearTheExactProduct) {
  const DType type = GetParam();
  const size_t rows = 48;
  const size_t cols = 1536;
  const auto src = random_rows(type, rows, cols, 11);
  const auto x = random_floats(cols, 12);
  ThreadPool pool(1, false);
  std::vector<double> exact(rows);
  std::vector<float> w(cols);
  double norm = 0;
  for (size_t r = 0; r < rows; ++r) {
    ASSERT_TRUE(dequantize_row(type, src.data() + r * row_bytes(type, cols).value(), cols, w.data()).ok());
    for (size_t k = 0; k < cols; ++k) exact[r] += double{w[k]} * double{x[k]};
    norm += exact[r] * exact[r];
  }
  for (const auto& [compute, limit] :
       {std::pair{Compute::kInt8, 1e-2}, std::pair{Compute::kInt16, 4e-5}, std::pair{Compute::kF32, 2e-6}}) {
    const auto packed = pack(type, src, rows, cols, compute);
    const auto y = run_product(packed.matrix, x, 1, compute, tested_isas().back(), pool);
    double error = 0;
    for (size_t r = 0; r < rows; ++r) error += (double{y[r]} - exact[r]) * (double{y[r]} - exact[r]);
    EXPECT_LE(std::sqrt(error / norm), limit) << dtype_info(type).name << " " << static_cast<int>(compute);
  }
}

// All codes at their ends against activations at theirs: no sum may saturate or wrap.
TEST_P(LinearProduct, ExtremesAreExact) {
  const DType type = GetParam();
  const size_t rows = 16;
  const size_t cols = 512;
  ThreadPool pool(1, false);
  for (const int fill : {0x00, 0xff, 0x0f, 0x80, 0x7f}) {
    auto src = random_rows(type, rows, cols, 21);
    const auto fields = half_fields(type);
    const size_t block = dtype_info(type).block_bytes;
    if (block < 16) continue;  // plain types
    for (size_t i = 0; i < src.size(); ++i) {
      const size_t at = i % block;
      const bool scale = std::ranges::any_of(fields, [&](size_t f) { return at == f || at == f + 1; });
      if (!scale && !(type == DType::kMXFP4 && at == 0)) src[i] = static_cast<std::byte>(fill);
    }
    for (const float sign : {1.0f, -1.0f, 0.0f}) {
      std::vector<float> x(9 * cols, sign);
      for (size_t i = 0; sign == 0.0f && i < x.size(); ++i) x[i] = i % 2 != 0 ? 1.0f : -1.0f;
      for (const Compute compute : kIntComputes) {
        const auto want = reference_product(type, src, rows, cols, x, 9, compute);
        const auto packed = pack(type, src, rows, cols, compute);
        for (const Isa isa : tested_isas()) {
          expect_same(run_product(packed.matrix, x, 9, compute, isa, pool), want,
                      label(type, rows, cols, 9, compute, isa) + " fill " + std::to_string(fill));
        }
      }
    }
  }
}

// Scales that are zero, subnormal, infinite or NaN, and activations of every kind, take the reference's way.
TEST_P(LinearProduct, OddScalesAndActivationsDoNotCrash) {
  const DType type = GetParam();
  const size_t rows = 17;
  const size_t cols = 256;
  ThreadPool pool(1, false);
  auto src = random_rows(type, rows, cols, 31);
  constexpr uint16_t kHalves[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7c00, 0xfc00, 0x7e00, 0x7bff};
  const auto& info = dtype_info(type);
  for (size_t at = 0, i = 0; at < src.size(); at += info.block_bytes, ++i) {
    if (type == DType::kMXFP4) src[at] = static_cast<std::byte>(i % 4 == 0 ? 255 - i % 3 : i % 5);
    if (info.block_elems == 1) continue;
    for (const size_t field : half_fields(type)) {
      std::memcpy(&src[at + field], &kHalves[(i / (cols / info.block_elems) + field) % 8], 2);
    }
  }
  auto x = random_floats(10 * cols, 32);
  for (size_t i = 0; i < cols; ++i) x[cols + i] = 0.0f;         // token 1: all zero
  for (size_t i = 0; i < cols; ++i) x[2 * cols + i] *= 1e-38f;  // token 2: subnormal
  for (size_t i = 0; i < cols; ++i) x[3 * cols + i] *= 1e36f;   // token 3: huge
  x[4 * cols + 40] = std::numeric_limits<float>::infinity();    // token 4: one infinity
  x[5 * cols + 200] = std::numeric_limits<float>::quiet_NaN();  // token 5: one NaN
  for (const Compute compute : kIntComputes) {
    const auto want = reference_product(type, src, rows, cols, x, 10, compute);
    const auto packed = pack(type, src, rows, cols, compute);
    for (const Isa isa : tested_isas()) {
      expect_same(run_product(packed.matrix, x, 10, compute, isa, pool), want,
                  label(type, rows, cols, 10, compute, isa));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, LinearProduct, testing::ValuesIn(kAllTypes),
                         [](const auto& param) { return std::string(dtype_info(param.param).name); });

TEST(Linear, TasksShareActivationsAndAddBiasAndResidual) {
  const size_t cols = 512;
  const size_t tokens = 5;
  const auto x = random_floats(tokens * cols, 1);
  const auto src_a = random_rows(DType::kQ4_K, 100, cols, 2);
  const auto src_b = random_rows(DType::kQ8_0, 24, cols, 3);
  const auto src_c = random_rows(DType::kF16, 40, cols, 4);
  const auto a = pack(DType::kQ4_K, src_a, 100, cols, Compute::kInt16);
  const auto b = pack(DType::kQ8_0, src_b, 24, cols, Compute::kInt16);
  const auto c = pack(DType::kF16, src_c, 40, cols, Compute::kInt16);
  const auto bias = random_floats(24, 5);
  const auto before = random_floats(tokens * 128, 6);

  auto want_a = reference_product(DType::kQ4_K, src_a, 100, cols, x, tokens, Compute::kInt16);
  auto want_b = reference_product(DType::kQ8_0, src_b, 24, cols, x, tokens, Compute::kInt16);
  auto want_c = reference_product(DType::kF16, src_c, 40, cols, x, tokens, Compute::kInt16);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t r = 0; r < 24; ++r) want_b[t * 24 + r] += bias[r];
    for (size_t r = 0; r < 40; ++r) want_c[t * 40 + r] += before[t * 128 + r];
  }
  for (const size_t threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads, false);
    AlignedBytes memory(Activations::bytes(tokens, cols, Compute::kInt16));
    const Activations acts(x.data(), cols, tokens, cols, Compute::kInt16, memory.data());
    std::vector<float> y_a(tokens * 100);
    std::vector<float> y_b(tokens * 24);
    auto y_c = before;
    pool.run([&](Worker& worker) {
      const auto [first, last] = worker.range(tokens);
      quantize_activations(acts, first, last);
      worker.barrier();
      const LinearTask tasks[] = {{&a.matrix, y_a.data(), 100},
                                  {&b.matrix, y_b.data(), 24, bias.data()},
                                  {&c.matrix, y_c.data(), 128, nullptr, true}};
      linear(tasks, acts, worker);
    });
    expect_same(y_a, want_a, "first task");
    expect_same(y_b, want_b, "task with bias");
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t r = 0; r < 128; ++r) {
        ASSERT_EQ(y_c[t * 128 + r], r < 40 ? want_c[t * 40 + r] : before[t * 128 + r]) << t << " " << r;
      }
    }
  }
}

TEST(Linear, GatedEqualsItsTwoProducts) {
  const size_t cols = 576;
  const size_t rows = 90;
  const auto src_g = random_rows(DType::kQ4_1, rows, cols, 2);
  const auto src_u = random_rows(DType::kQ5_0, rows, cols, 3);
  for (const Compute compute : {Compute::kInt8, Compute::kInt16, Compute::kF32}) {
    const auto gate = pack(DType::kQ4_1, src_g, rows, cols, compute);
    const auto up = pack(DType::kQ5_0, src_u, rows, cols, compute);
    for (const size_t tokens : {1, 3, 8, 21}) {
      const auto x = random_floats(tokens * cols, 8, 0.2f);
      const auto want_g = reference_product(DType::kQ4_1, src_g, rows, cols, x, tokens, compute);
      const auto want_u = reference_product(DType::kQ5_0, src_u, rows, cols, x, tokens, compute);
      for (const Gate kind : {Gate::kSilu, Gate::kGeluTanh}) {
        ThreadPool pool(3, false);
        AlignedBytes memory(Activations::bytes(tokens, cols, compute));
        const Activations acts(x.data(), cols, tokens, cols, compute, memory.data());
        std::vector<float> y(tokens * rows);
        pool.run([&](Worker& worker) {
          const auto [first, last] = worker.range(tokens);
          quantize_activations(acts, first, last);
          worker.barrier();
          linear_gated(gate.matrix, up.matrix, kind, acts, y.data(), rows, worker);
        });
        for (size_t i = 0; i < y.size(); ++i) {
          const double g = want_g[i];
          const double act = kind == Gate::kSilu
                                 ? g / (1 + std::exp(-g))
                                 : 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
          ASSERT_NEAR(y[i], act * want_u[i], 1e-6 + 2e-6 * std::fabs(act * want_u[i])) << i;
        }
      }
    }
  }
}

TEST(Linear, WideRowsBySlicesGiveTheSameBits) {
  const size_t rows = 3 * kPanelRows + 2;
  for (const auto& [type, cols] : {std::pair{DType::kQ4_0, size_t{4160}}, {DType::kQ6_K, size_t{2304}}}) {
    const auto src = random_rows(type, rows, cols, 2);
    for (const Compute compute : {Compute::kInt8, Compute::kInt16}) {
      const auto packed = pack(type, src, rows, cols, compute);
      for (const size_t tokens : {9, 19, 530}) {  // the last: more than one batch of waiting sums
        const auto x = random_floats(tokens * cols, 3);
        ThreadPool pool(2, false);
        const auto want = tokens < 100 ? reference_product(type, src, rows, cols, x, tokens, compute)
                                       : run_product(packed.matrix, x, tokens, compute, Isa::kScalar, pool);
        for (const Isa isa : tested_isas()) {
          expect_same(run_product(packed.matrix, x, tokens, compute, isa, pool), want, "wide rows");
        }
      }
    }
  }
}

TEST(Linear, WideGatedProductsAreThoseOfAnyBatch) {
  const size_t cols = 4160;
  const size_t rows = 9 * kPanelRows + 1;  // more than one group of panels
  const size_t tokens = 270;
  const auto gate = pack(DType::kQ4_1, random_rows(DType::kQ4_1, rows, cols, 2), rows, cols, Compute::kInt16);
  const auto up = pack(DType::kQ8_0, random_rows(DType::kQ8_0, rows, cols, 3), rows, cols, Compute::kInt16);
  const auto x = random_floats(tokens * cols, 8, 0.2f);
  const auto run = [&](const float* from, size_t count, float* y) {
    ThreadPool pool(2, false);
    AlignedBytes memory(Activations::bytes(count, cols, Compute::kInt16));
    const Activations acts(from, cols, count, cols, Compute::kInt16, memory.data());
    quantize_activations(acts, 0, count);
    pool.run(
        [&](Worker& worker) { linear_gated(gate.matrix, up.matrix, Gate::kSilu, acts, y, rows, worker); });
  };
  std::vector<float> together(tokens * rows);
  run(x.data(), tokens, together.data());
  std::vector<float> alone(rows);
  for (const size_t token : {size_t{0}, size_t{8}, size_t{255}, size_t{256}, tokens - 1}) {
    run(x.data() + token * cols, 1, alone.data());
    for (size_t r = 0; r < rows; ++r) ASSERT_EQ(together[token * rows + r], alone[r]) << token << ' ' << r;
  }
}

TEST(Linear, StreamPlansChangeNothing) {
  const size_t rows = 200;
  const size_t cols = 768;
  const auto src = random_rows(DType::kQ6_K, rows, cols, 2);
  const auto packed = pack(DType::kQ6_K, src, rows, cols, Compute::kInt16);
  const auto x = random_floats(cols, 3);
  const auto want = reference_product(DType::kQ6_K, src, rows, cols, x, 1, Compute::kInt16);
  ThreadPool pool(2, false);
  const StreamPlan before = stream_plan();
  for (const StreamPlan& plan :
       {StreamPlan{1, 0}, StreamPlan{2, 512}, StreamPlan{4, 2048}, StreamPlan{8, 1024}}) {
    set_stream_plan(plan);
    EXPECT_EQ(stream_plan().panels, plan.panels);
    expect_same(run_product(packed.matrix, x, 1, Compute::kInt16, tested_isas().back(), pool), want, "plan");
  }
  set_stream_plan(before);
}

TEST(Linear, TheStreamProbeGivesAPlan) {
  ThreadPool pool(2, false);
  const StreamPlan before = stream_plan();
  const auto plan = measure_streams(pool);
  if (plan.ok()) {
    EXPECT_TRUE(is_stream_candidate(*plan));
    EXPECT_GT(plan->gb_per_s, 0.1);
  } else {  // an emulator, a sanitizer, a busy machine
    EXPECT_EQ(plan.status().code(), Code::kDeadlineExceeded);
  }
  EXPECT_EQ(stream_plan().panels, before.panels);
  EXPECT_EQ(stream_plan().prefetch_bytes, before.prefetch_bytes);
  EXPECT_EQ(measure_streams({}, pool).status().code(), Code::kFailedPrecondition);
  EXPECT_FALSE(is_stream_candidate({3, 1024, 0}));
}

}  // namespace
}  // namespace isthmus
