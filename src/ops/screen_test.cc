#include "ops/screen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ops/linear_test_util.h"
#include "ops/sampling_math.h"
#include "ops/screen_build.h"
#include "tensor/quantize.h"

namespace isthmus {
namespace {

using Memory = testing_linear::AlignedBytes;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Vectors with most of their energy in few directions, as hidden states have it.
std::vector<float> skewed(size_t n, size_t cols, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n * cols);
  for (size_t i = 0; i < n; ++i) {
    const float common = 4 * normal(rng);
    for (size_t j = 0; j < cols; ++j) {
      const float size = j % 32 == 0 ? 8.0F : 0.3F;
      out[i * cols + j] = size * normal(rng) + common * std::cos(static_cast<float>(j));
    }
  }
  return out;
}

/// A matrix, its screen and everything that a product needs.
class Head {
 public:
  Head(DType type, size_t rows, size_t cols, const std::vector<float>& values) {
    const size_t stride = row_bytes(type, cols).value();
    std::vector<std::byte> source(rows * stride);
    for (size_t r = 0; r < rows; ++r) {
      EXPECT_TRUE(quantize_row(type, values.data() + r * cols, cols, nullptr, &source[r * stride]).ok());
    }
    pack(type, rows, cols, source);
  }
  Head(DType type, size_t rows, size_t cols, uint32_t seed) {
    pack(type, rows, cols, testing_linear::random_rows(type, rows, cols, seed));
  }

  Status build(size_t threads, const std::vector<float>& seen) {
    ScreenMoments moments(w_.cols);
    moments.add(seen.data(), seen.size() / w_.cols);
    auto basis = screen_basis(moments);
    if (!basis.ok()) return basis.status();
    bytes_ = std::make_unique<Memory>(Screen::bytes(w_.rows, w_.cols));
    ThreadPool pool(threads, false);
    ISTHMUS_RETURN_IF_ERROR(build_screen(w_, *basis, pool, {}, {bytes_->data(), bytes_->size()}));
    auto view = Screen::view(w_, {bytes_->data(), bytes_->size()});
    if (!view.ok()) return view.status();
    screen_ = std::make_unique<Screen>(*view);
    return ok_status();
  }

  const PackedMatrix& matrix() const { return w_; }
  Memory& bytes() { return *bytes_; }

  std::vector<float> full(const float* x, Isa isa) const {
    std::vector<float> out(w_.rows);
    run(x, isa, 1, [&](const Activations& acts, Worker& worker) {
      const LinearTask task{&w_, out.data(), w_.rows};
      linear({&task, 1}, acts, worker);
    });
    return out;
  }

  std::vector<float> best(const float* x, size_t k, Isa isa, size_t threads,
                          size_t* touched = nullptr) const {
    std::vector<float> out(w_.rows, kNotANumber);
    auto scratch = ScreenScratch::create(w_.rows, w_.cols, threads);
    EXPECT_TRUE(scratch.ok());
    run(x, isa, threads, [&](const Activations& acts, Worker& worker) {
      screen_best(*screen_, acts, k, out.data(), **scratch, worker);
    });
    if (touched != nullptr) *touched = (*scratch)->touched_panels();
    return out;
  }

 private:
  void pack(DType type, size_t rows, size_t cols, const std::vector<std::byte>& source) {
    data_ = std::make_unique<Memory>(packed_bytes(type, rows, cols, Compute::kInt16).value());
    EXPECT_TRUE(
        pack_panels(type, source.data(), rows, cols, Compute::kInt16, 0, panel_count(rows), data_->data())
            .ok());
    w_ = {pack_format(type, Compute::kInt16).value(), rows, cols, data_->data()};
  }
  template <class Body>
  void run(const float* x, Isa isa, size_t threads, const Body& body) const {
    const LinearKernels& kernels = linear_kernels_for(isa);
    Memory records(Activations::bytes(1, w_.cols, Compute::kInt16, kernels));
    const Activations acts(x, w_.cols, 1, w_.cols, Compute::kInt16, records.data(), kernels);
    quantize_activations(acts, 0, 1);
    ThreadPool pool(threads, false);
    pool.run([&](Worker& worker) { body(acts, worker); });
  }

  std::unique_ptr<Memory> data_;
  std::unique_ptr<Memory> bytes_;
  std::unique_ptr<Screen> screen_;
  PackedMatrix w_{};
};

/// The k best are the same, and whatever is not -infinity is exact.
void expect_same_best(const std::vector<float>& full, const std::vector<float>& found, size_t k) {
  std::vector<TokenLogit> want;
  std::vector<TokenLogit> got;
  top_k_logits(full, k, &want);
  top_k_logits(found, k, &got);
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].id, want[i].id) << "place " << i << " of " << k;
    ASSERT_EQ(std::memcmp(&got[i].logit, &want[i].logit, sizeof(float)), 0);
  }
  for (size_t r = 0; r < full.size(); ++r) {
    if (found[r] == -kInfinity) continue;
    ASSERT_EQ(std::memcmp(&found[r], &full[r], sizeof(float)), 0) << "row " << r;
  }
}

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  std::vector<float> out(n);
  for (float& value : out) value = normal(rng);
  return out;
}

TEST(Screen, FindsTheBestOfEveryTypeAndInstructionSet) {
  constexpr size_t kRows = 4096 + 5;
  for (const DType type : {DType::kQ8_0, DType::kQ6_K, DType::kQ4_0, DType::kQ5_0, DType::kF16, DType::kBF16,
                           DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
    const size_t cols = 256;
    Head head(type, kRows, cols, 3U);
    ASSERT_TRUE(head.build(2, skewed(600, cols, 1)).ok()) << dtype_info(type).name;
    const auto states = skewed(3, cols, 2);
    for (const Isa isa : testing_linear::tested_isas()) {
      for (size_t i = 0; i < 3; ++i) {
        const float* x = states.data() + i * cols;
        for (const size_t k : {1U, 40U, 64U}) expect_same_best(head.full(x, isa), head.best(x, k, isa, 1), k);
      }
    }
  }
}

TEST(Screen, OddShapesAndThreads) {
  for (const size_t cols : {128U, 160U, 576U, 640U, 896U}) {
    const size_t rows = 4096 + cols % 17;
    Head head(DType::kQ8_0, rows, cols, random_values(rows * cols, 5));
    ASSERT_TRUE(head.build(3, skewed(400, cols, 1)).ok());
    const auto states = skewed(2, cols, 9);
    for (const size_t threads : {1U, 2U, 3U}) {
      for (size_t i = 0; i < 2; ++i) {
        const float* x = states.data() + i * cols;
        const Isa isa = active_isa().value();
        for (const size_t k : {1U, 40U})
          expect_same_best(head.full(x, isa), head.best(x, k, isa, threads), k);
      }
    }
  }
}

TEST(Screen, ReadsLittleWhereTheBasisFits) {
  constexpr size_t kCols = 256;
  constexpr size_t kRows = 16384;
  Head head(DType::kQ8_0, kRows, kCols, random_values(kRows * kCols, 5));
  ASSERT_TRUE(head.build(2, skewed(2000, kCols, 1)).ok());
  const auto states = skewed(8, kCols, 77);
  size_t all = 0;
  for (size_t i = 0; i < 8; ++i) {
    size_t touched = 0;
    head.best(states.data() + i * kCols, 1, active_isa().value(), 1, &touched);
    all += touched;
  }
  EXPECT_LT(all, 8 * panel_count(kRows) / 4);
}

TEST(Screen, TheLowestIdWinsTies) {
  constexpr size_t kCols = 128;
  constexpr size_t kRows = 8192;
  auto values = random_values(kRows * kCols, 5);
  const auto states = skewed(1, kCols, 4);
  // The same row, along the vector, at many places.
  for (const size_t row : {8000U, 17U, 4095U, 16U, 333U}) {
    for (size_t j = 0; j < kCols; ++j) values[row * kCols + j] = 0.02F * states[j];
  }
  Head head(DType::kQ8_0, kRows, kCols, values);
  ASSERT_TRUE(head.build(1, skewed(300, kCols, 1)).ok());
  const Isa isa = active_isa().value();
  const auto full = head.full(states.data(), isa);
  for (const size_t k : {1U, 2U, 4U, 5U, 6U}) {
    const auto found = head.best(states.data(), k, isa, 2);
    expect_same_best(full, found, k);
    std::vector<TokenLogit> best;
    top_k_logits(found, k, &best);
    EXPECT_EQ(best[0].id, 16U);
  }
}

/// Rows whose every code errs in the direction of the vector: the bound has to hold where it is tight.
TEST(Screen, BoundHoldsForAdversarialResiduals) {
  constexpr size_t kCols = 128;
  constexpr size_t kRows = 4096;
  const auto states = skewed(6, kCols, 4);
  for (size_t s = 0; s < 6; ++s) {
    const float* x = states.data() + s * kCols;
    auto values = random_values(kRows * kCols, static_cast<uint32_t>(s));
    std::mt19937 rng(11);
    for (size_t row = 0; row < kRows; row += 2) {
      // A step's fraction of the neighbour row, moved along the vector's signs.
      const float push = 0.03F * static_cast<float>(rng() % 1000) / 1000.0F;
      for (size_t j = 0; j < kCols; ++j) {
        values[row * kCols + j] = values[(row + 1) * kCols + j] + std::copysign(push, x[j]);
      }
    }
    Head head(DType::kF16, kRows, kCols, values);
    // A basis learnt from other vectors: any basis must be right.
    ASSERT_TRUE(head.build(1, random_values(200 * kCols, 99)).ok());
    const Isa isa = active_isa().value();
    const auto full = head.full(x, isa);
    for (const size_t k : {1U, 8U, 64U}) expect_same_best(full, head.best(x, k, isa, 1), k);
  }
}

TEST(Screen, ValuesThatAreNotFinite) {
  constexpr size_t kCols = 128;
  constexpr size_t kRows = 4096;
  auto values = random_values(kRows * kCols, 5);
  Head head(DType::kQ8_0, kRows, kCols, values);
  ASSERT_TRUE(head.build(1, skewed(300, kCols, 1)).ok());
  const Isa isa = active_isa().value();
  for (const float bad : {kNotANumber, kInfinity, -kInfinity, 3e38F}) {
    auto x = skewed(1, kCols, 4);
    x[77] = bad;
    const auto full = head.full(x.data(), isa);
    const auto found = head.best(x.data(), 3, isa, 2);
    for (size_t r = 0; r < kRows; ++r) {
      if (found[r] == -kInfinity) continue;
      ASSERT_EQ(std::isnan(found[r]), std::isnan(full[r]));
      if (std::isnan(full[r])) continue;
      ASSERT_EQ(found[r], full[r]);
    }
  }
  const std::vector<float> zero(kCols, 0.0F);
  expect_same_best(head.full(zero.data(), isa), head.best(zero.data(), 5, isa, 2), 5);
}

TEST(Screen, DamagedRowsOfTheMatrix) {
  constexpr size_t kCols = 128;
  constexpr size_t kRows = 4096;
  auto values = random_values(kRows * kCols, 5);
  for (size_t j = 0; j < kCols; ++j) values[99 * kCols + j] = j % 2 == 0 ? kNotANumber : kInfinity;
  for (size_t j = 0; j < kCols; ++j) values[2000 * kCols + j] = 0;
  Head head(DType::kF16, kRows, kCols, [&] {
    auto finite = values;
    for (float& value : finite) value = std::isfinite(value) ? value : 60000.0F;
    return finite;
  }());
  ASSERT_TRUE(head.build(2, skewed(300, kCols, 1)).ok());
  const auto x = skewed(1, kCols, 4);
  const Isa isa = active_isa().value();
  expect_same_best(head.full(x.data(), isa), head.best(x.data(), 4, isa, 2), 4);
}

TEST(Screen, TheSameBytesForAnyThreads) {
  constexpr size_t kCols = 160;
  Head one(DType::kQ8_0, 4100, kCols, 3U);
  Head three(DType::kQ8_0, 4100, kCols, 3U);
  ASSERT_TRUE(one.build(1, skewed(300, kCols, 1)).ok());
  ASSERT_TRUE(three.build(3, skewed(300, kCols, 1)).ok());
  EXPECT_EQ(std::memcmp(one.bytes().data(), three.bytes().data(), one.bytes().size()), 0);
}

TEST(Screen, RefusesWhatItCannotDo) {
  EXPECT_EQ(Screen::refusal(PackFormat::kQ8_0, 50000, 576), "");
  EXPECT_NE(Screen::refusal(PackFormat::kQ4_K, 50000, 576), "");
  EXPECT_NE(Screen::refusal(PackFormat::kF32, 50000, 576), "");
  EXPECT_NE(Screen::refusal(PackFormat::kQ8_0, 300, 576), "");
  EXPECT_NE(Screen::refusal(PackFormat::kQ8_0, 50000, 64), "");
  EXPECT_NE(Screen::refusal(PackFormat::kQ8_0, 50000, 1 << 20), "");
}

TEST(Screen, ViewChecksTheBytes) {
  Head head(DType::kQ8_0, 4096, 128, 3U);
  ASSERT_TRUE(head.build(1, skewed(200, 128, 1)).ok());
  Memory& bytes = head.bytes();
  const auto view = [&](size_t size) {
    return Screen::view(head.matrix(), {bytes.data(), size}).status().code();
  };
  EXPECT_EQ(view(Screen::bytes(4096, 128)), Code::kOk);
  EXPECT_EQ(view(Screen::bytes(4096, 128) - 64), Code::kCorrupt);
  EXPECT_EQ(view(0), Code::kCorrupt);
  const std::byte old = bytes.data()[0];
  bytes.data()[0] = std::byte{99};  // the version
  EXPECT_EQ(view(Screen::bytes(4096, 128)), Code::kCorrupt);
  bytes.data()[0] = old;
  std::memcpy(bytes.data() + offsetof(ScreenHeader, reach), &kNotANumber, sizeof(kNotANumber));
  EXPECT_EQ(view(Screen::bytes(4096, 128)), Code::kCorrupt);
}

}  // namespace
}  // namespace isthmus
