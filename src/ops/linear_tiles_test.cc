// Products through tiles, hardware's where the machine has them and modelled ones where AVX-512 is: the same
// bits as without, and a state that nothing upsets.
#include "ops/linear_tiles.h"

#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "ops/linear_test_util.h"
#if defined(__x86_64__)
#include "kernels/amx/tile_probe.h"
#endif

namespace isthmus {
namespace {

using namespace testing_linear;  // NOLINT: a test's own helpers

std::vector<Isa> tile_isas() {
  std::vector<Isa> out;
  for (const Isa isa : testable_isas()) {
    if (linear_kernels_for(isa).strip_tokens == kStripTokens) out.push_back(isa);
  }
  return out;
}

void expect_bits_of(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << what;
}

std::vector<float> first_tokens(const std::vector<float>& x, size_t floats) {
  return {x.begin(), x.begin() + static_cast<ptrdiff_t>(floats)};
}

class TileProduct : public testing::TestWithParam<DType> {};

TEST_P(TileProduct, EqualsScalarBitForBit) {
  const DType type = GetParam();
  ThreadPool pool(2, false);
  for (const size_t cols : {32, 64, 96, 256, 576, 1024}) {
    if (!row_bytes(type, cols)) continue;
    const auto x = random_floats(40 * cols, static_cast<uint32_t>(cols));
    for (const size_t rows : {1, 15, 16, 17, 48, 160}) {
      const auto src = random_rows(type, rows, cols, static_cast<uint32_t>(rows));
      for (const Compute compute : kIntComputes) {
        const auto packed = pack(type, src, rows, cols, compute);
        const auto want = run_product(packed.matrix, x, 40, compute, Isa::kScalar, pool);
        for (const Isa isa : tile_isas()) {
          for (const size_t tokens : {1, 9, 15, 16, 17, 24, 31, 32, 33, 40}) {
            expect_bits_of(
                run_product(packed.matrix, first_tokens(x, tokens * cols), tokens, compute, isa, pool),
                first_tokens(want, tokens * rows),
                std::to_string(rows) + "x" + std::to_string(cols) + " tokens " + std::to_string(tokens) +
                    " " + std::string(isa_name(isa)));
          }
        }
      }
    }
  }
}

// Codes and activations at their ends, so that sums are as large as they get.
TEST_P(TileProduct, ExtremesAreExact) {
  const DType type = GetParam();
  const size_t rows = 16;
  const size_t cols = 512;
  ThreadPool pool(1, false);
  for (const int fill : {0x00, 0xff}) {
    auto src = random_rows(type, rows, cols, 21);
    const auto fields = half_fields(type);
    const size_t block = dtype_info(type).block_bytes;
    for (size_t i = 0; i < src.size(); ++i) {
      const size_t at = i % block;
      const bool scale = std::ranges::any_of(fields, [&](size_t f) { return at == f || at == f + 1; });
      if (!scale && !(type == DType::kMXFP4 && at == 0)) src[i] = static_cast<std::byte>(fill);
    }
    for (const float sign : {1.0F, -1.0F}) {
      const std::vector<float> x(32 * cols, sign);
      for (const Compute compute : kIntComputes) {
        const auto packed = pack(type, src, rows, cols, compute);
        const auto want = run_product(packed.matrix, x, 32, compute, Isa::kScalar, pool);
        for (const Isa isa : tile_isas()) {
          expect_bits_of(run_product(packed.matrix, x, 32, compute, isa, pool), want, "extremes");
        }
      }
    }
  }
}

std::vector<DType> quantised_types() {
  std::vector<DType> out;
  for (const DType type : kAllTypes) {
    if (is_quantised(pack_format(type, Compute::kInt16).value())) out.push_back(type);
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(AllTypes, TileProduct, testing::ValuesIn(quantised_types()),
                         [](const auto& param) { return std::string(dtype_info(param.param).name); });

/// A product of a type with a scale per 32 columns and one with a scale per 16: both shapes of tiles.
struct Mixture {
  static constexpr size_t kRows = 48;
  static constexpr size_t kCols = 512;
  static constexpr size_t kTokens = 35;
  Packed coarse =
      pack(DType::kQ4_K, random_rows(DType::kQ4_K, kRows, kCols, 1), kRows, kCols, Compute::kInt16);
  Packed fine = pack(DType::kQ6_K, random_rows(DType::kQ6_K, kRows, kCols, 2), kRows, kCols, Compute::kInt16);
  std::vector<float> x = random_floats(kTokens * kCols, 3);

  std::vector<float> run(Isa isa, ThreadPool& pool) const {
    auto out = run_product(coarse.matrix, x, kTokens, Compute::kInt16, isa, pool);
    const auto more = run_product(fine.matrix, x, kTokens, Compute::kInt16, isa, pool);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
};

TEST(Tiles, GatedProductsAndWideMatricesGiveTheSameBits) {
  const size_t tokens = 35;
  for (const auto& shape : {std::pair<size_t, size_t>{90, 576}, {18, 16384}}) {
    const size_t rows = shape.first;
    const size_t cols = shape.second;
    const auto gate =
        pack(DType::kQ4_1, random_rows(DType::kQ4_1, rows, cols, 2), rows, cols, Compute::kInt16);
    const auto up = pack(DType::kQ5_0, random_rows(DType::kQ5_0, rows, cols, 3), rows, cols, Compute::kInt16);
    const auto x = random_floats(tokens * cols, 4, 0.2F);
    const auto run = [&](Isa isa) {
      ThreadPool pool(3, false);
      const LinearKernels& kernels = linear_kernels_for(isa);
      AlignedBytes memory(Activations::bytes(tokens, cols, Compute::kInt16, kernels));
      const Activations acts(x.data(), cols, tokens, cols, Compute::kInt16, memory.data(), kernels);
      std::vector<float> y(tokens * rows);
      pool.run([&](Worker& worker) {
        const auto [first, last] = worker.range(tokens);
        quantize_activations(acts, first, last);
        worker.barrier();
        linear_gated(gate.matrix, up.matrix, Gate::kSilu, acts, y.data(), rows, worker);
      });
      return y;
    };
    const auto want = run(Isa::kScalar);
    for (const Isa isa : tile_isas()) expect_bits_of(run(isa), want, "gated");
  }
}

TEST(Tiles, ThePlanChangesNothingButTheWay) {
  const Mixture mixture;
  ThreadPool pool(1, false);
  const TilePlan before = tile_plan();
  const auto want = mixture.run(Isa::kScalar, pool);
  for (const Isa isa : tile_isas()) {
    for (const bool on : {true, false}) {
      set_tile_plan({on, on});
      EXPECT_EQ(tile_plan().int16, on);
      EXPECT_EQ(use_int_tiles(Compute::kInt8), on);
      expect_bits_of(mixture.run(isa, pool), want, "plan");
    }
  }
  set_tile_plan(before);
}

TEST(Tiles, OnlyInstructionsAreTimed) {
  ThreadPool pool(2, false);
  const TilePlan before = tile_plan();
  const auto speeds = measure_tiles(pool);
  if (linear_kernels().isa == Isa::kAmx) {
    ASSERT_TRUE(speeds.ok()) << speeds.status().to_string();
    EXPECT_GT(
        std::min({speeds->tiles_int8, speeds->tiles_int16, speeds->vectors_int8, speeds->vectors_int16}),
        0.1);
  } else {
    EXPECT_EQ(speeds.status().code(), Code::kFailedPrecondition);
  }
  EXPECT_EQ(tile_plan().int8, before.int8);
  EXPECT_EQ(tile_plan().int16, before.int16);
  EXPECT_FALSE((TileSpeeds{1, 2, 3, 2}).plan().int8);
  EXPECT_TRUE((TileSpeeds{1, 2, 3, 2}).plan().int16);
}

// More threads than processors, with both shapes of tiles on each: every thread's tiles are its own.
TEST(Tiles, ThreadsDoNotDisturbEachOther) {
  const Mixture mixture;
  ThreadPool one(1, false);
  const auto want = mixture.run(Isa::kScalar, one);
  for (const Isa isa : tile_isas()) {
    std::vector<std::thread> callers;
    std::vector<int> equal(6, 0);
    for (size_t i = 0; i < equal.size(); ++i) {
      callers.emplace_back([&, i] {
        ThreadPool pool(1 + i % 3, false);
        for (int round = 0; round < 4; ++round) equal[i] += mixture.run(isa, pool) == want;
      });
    }
    for (auto& caller : callers) caller.join();
    EXPECT_EQ(equal, std::vector<int>(equal.size(), 4)) << isa_name(isa);
  }
}

TEST(Tiles, AForkedChildHasTilesToo) {
  const Mixture mixture;
  ThreadPool pool(1, false);
  const auto want = mixture.run(Isa::kScalar, pool);
  for (const Isa isa : tile_isas()) {
    expect_bits_of(mixture.run(isa, pool), want, "parent before");  // configured when it forks
    const pid_t child = fork();
    if (child == 0) _exit(mixture.run(isa, pool) == want ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << isa_name(isa) << " " << status;
    expect_bits_of(mixture.run(isa, pool), want, "parent after");
  }
}

volatile sig_atomic_t alarms = 0;

TEST(Tiles, SignalsInTheMiddleChangeNothing) {
  const Mixture mixture;
  ThreadPool pool(1, false);
  const auto want = mixture.run(Isa::kScalar, pool);
  struct sigaction action {};
  action.sa_handler = [](int) { alarms = alarms + 1; };
  action.sa_flags = SA_RESTART;
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 200}, {0, 200}};
  const itimerval never{};
  for (const Isa isa : tile_isas()) {
    alarms = 0;
    ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
    bool equal = true;
    while (equal && alarms < 50) equal = mixture.run(isa, pool) == want;
    ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
    EXPECT_TRUE(equal) << isa_name(isa);
  }
  ASSERT_EQ(sigaction(SIGALRM, &before, nullptr), 0);
}

#if defined(__x86_64__)
TEST(Tiles, AThreadIsConfiguredOncePerShape) {
  const auto& all = testable_isas();
  if (std::ranges::find(all, Isa::kAmxModel) == all.end()) {
    // The modelled tiles need AVX-512.
    EXPECT_EQ(std::ranges::find(all, Isa::kAvx512Vnni), all.end());
    return;
  }
  const Mixture mixture;
  ThreadPool pool(1, false);
  std::vector<uint64_t> loads;
  uint64_t faults = 1;
  std::thread thread([&] {
    const auto product = [&](const Packed& weights) {
      run_product(weights.matrix, mixture.x, Mixture::kTokens, Compute::kInt16, Isa::kAmxModel, pool);
      loads.push_back(kernels::amx_model_counts().config_loads);
    };
    product(mixture.coarse);
    product(mixture.coarse);
    product(mixture.fine);
    product(mixture.fine);
    kernels::amx_model_release();
    product(mixture.fine);
    faults = kernels::amx_model_counts().faults;
  });
  thread.join();
  EXPECT_EQ(loads, (std::vector<uint64_t>{1, 1, 2, 2, 3}));
  EXPECT_EQ(faults, 0U);
}
#endif

}  // namespace
}  // namespace isthmus
