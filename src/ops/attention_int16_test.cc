// Attention in 16-bit whole numbers: near float32, the same bits on every set and however tokens are batched,
// and float32 itself where it does not apply.
#include <gtest/gtest.h>

#include <limits>

#include "ops/attention_test_util.h"

namespace isthmus {
namespace {

using namespace attention_testing;  // NOLINT: its other half

std::vector<double> wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

std::vector<float> run_int16(Batch batch, size_t threads = 1, const AttentionKernels* kernels = nullptr) {
  batch.compute = AttentionCompute::kInt16;
  return run(batch, threads, kernels);
}

TEST(AttentionInt16Test, IsNearFloat32ForAllHeadSizes) {
  for (const size_t dim : {8u, 24u, 64u, 72u, 80u, 96u, 128u, 256u}) {
    for (const KvType type : {KvType::kF16, KvType::kBF16}) {
      for (const size_t tokens : {1u, 11u, 130u}) {
        Single s({6, 2, dim, type, type}, 700, tokens, 3);
        s.kv.store_plain();
        const auto float32 = run(s.batch);
        const auto int16 = run_int16(s.batch);
        EXPECT_LE(worst_error(int16, wide(float32)), 4e-4) << dim << ' ' << tokens;
        EXPECT_NE(std::memcmp(int16.data(), float32.data(), int16.size() * sizeof(float)), 0)
            << "it is in use";
      }
    }
  }
}

/// Keys whose dimensions have sizes of their own, as those of models with key biases.
TEST(AttentionInt16Test, UnevenKeysStayNear) {
  Single s({7, 1, 64, KvType::kF16, KvType::kF16}, 500, 40, 5);
  for (size_t j = 0; j < 500; ++j) {
    auto* key = const_cast<float*>(s.kv.key(0, j));
    for (size_t d = 0; d < 4; ++d) key[9 * d] = 40.0f + 20.0f * static_cast<float>(d) + key[9 * d];
  }
  s.kv.store_plain();
  EXPECT_LE(worst_error(run_int16(s.batch), wide(run(s.batch))), 2e-3);
}

TEST(AttentionInt16Test, RandomBatchesAreNearFloat32) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Mixed mixed(seed * 101);
    EXPECT_LE(worst_error(run_int16(mixed.batch), wide(run(mixed.batch))), 2e-3) << seed;
  }
}

TEST(AttentionInt16Test, SameBitsOnEverySetAndThreadCount) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    Mixed mixed(seed * 77 + 5);
    mixed.batch.compute = AttentionCompute::kInt16;
    expect_same_everywhere(mixed.batch, run(mixed.batch, 2), "16 bits");
  }
  for (const size_t dim : {72u, 96u, 256u}) {
    for (size_t group = 1; group <= 8; ++group) {
      Single s({group, 1, dim, KvType::kF16, KvType::kBF16}, 333, 21, static_cast<uint32_t>(dim + group));
      s.kv.store_plain();
      s.batch.compute = AttentionCompute::kInt16;
      for (QueryView& view : s.batch.views[0]) view.first_key = view.end_key - 290;
      expect_same_everywhere(s.batch, run(s.batch, 2), "16 bits in a window");
    }
  }
}

TEST(AttentionInt16Test, TokenByTokenEqualsOneBatch) {
  for (uint32_t seed = 0; seed < 16; ++seed) {
    Mixed mixed(seed * 31 + 2);
    mixed.batch.compute = AttentionCompute::kInt16;
    expect_same_token_by_token(mixed.batch);
  }
}

/// What stands after a token, in its own block too, cannot reach it through a scale.
TEST(AttentionInt16Test, LaterKeysLeaveNoTrace) {
  Single s({4, 2, 64, KvType::kF16, KvType::kF16}, 320, 10, 12);
  s.kv.store_plain();
  for (QueryView& view : s.batch.views[0]) view.end_key -= 25;  // to 295: seven keys of the last block
  const auto before = run_int16(s.batch);
  std::vector<float> large(64, 900.0f);
  for (size_t h = 0; h < 2; ++h) {
    const KvBlockRef& last = s.kv.blocks(h)[9];
    for (size_t slot = 7; slot < 32; ++slot) {
      kv_write(KvType::kF16, KvPart::kKey, const_cast<std::byte*>(last.k), slot, large.data(), 64);
      kv_write(KvType::kF16, KvPart::kValue, const_cast<std::byte*>(last.v), slot, large.data(), 64);
    }
  }
  expect_same(run_int16(s.batch), before, "later keys");
}

/// Nor through a weight of zero, where a later value is not finite.
TEST(AttentionInt16Test, LaterEndlessValuesLeaveNoTrace) {
  Single s({4, 2, 64, KvType::kF16, KvType::kF16}, 320, 30, 12);
  s.kv.store_plain();
  const auto before = run_int16(s.batch);
  const std::vector<float> endless(64, std::numeric_limits<float>::infinity());
  for (size_t h = 0; h < 2; ++h) {
    const KvBlockRef& last = s.kv.blocks(h)[9];
    kv_write(KvType::kF16, KvPart::kValue, const_cast<std::byte*>(last.v), 31, endless.data(), 64);
  }
  auto after = run_int16(s.batch);
  const size_t others = 29 * s.batch.row();
  EXPECT_EQ(std::memcmp(after.data(), before.data(), others * sizeof(float)), 0);
  for (size_t i = others; i < after.size(); ++i) EXPECT_FALSE(std::isfinite(after[i]));
}

TEST(AttentionInt16Test, StoredFloatsAndCodesAreNotTouched) {
  for (const KvType type : {KvType::kF32, KvType::kQ8}) {
    Single s({6, 2, 64, type, type}, 300, 40, 8);
    s.kv.store_plain();
    expect_same(run_int16(s.batch), run(s.batch), "types that have no 16-bit form");
  }
  const RopeTable rope = make_rope(RopeStyle::kHalf, 64, false);
  Single s({6, 2, 64, KvType::kF16, KvType::kF16}, 300, 40, 8);
  s.kv.store([](size_t b) { return static_cast<KeyEncoding>(b % 3); }, &rope);
  s.batch.rope = &rope;
  expect_same(run_int16(s.batch), run(s.batch), "keys that have to be turned");
}

TEST(AttentionInt16Test, HolesAndMissingPartsAreSeenByNobody) {
  Single s({6, 2, 64, KvType::kF16, KvType::kF16}, 700, 30, 32);
  s.kv.store_plain();
  for (size_t j = 0; j < 600; ++j) {
    if (j % 3 == 1 || (j >= 256 && j < 512)) s.kv.hide(j);
  }
  EXPECT_LE(worst_error(run_int16(s.batch), oracle(s.batch)), 5e-3);
  s.batch.compute = AttentionCompute::kInt16;
  expect_same_everywhere(s.batch, run(s.batch), "holes");
  for (QueryView& view : s.batch.views[0]) view.first_key = 700;
  for (const float v : run(s.batch)) ASSERT_EQ(v, 0.0f);
}

TEST(AttentionInt16Test, NumbersThatAreNotFiniteShow) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Single s({2, 1, 64, KvType::kF16, KvType::kF16}, 128, 20, 8);
    const_cast<float*>(s.kv.value(0, 40))[5] = bad;
    s.kv.store_plain();
    const auto got = run_int16(s.batch);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isfinite(got[i]), i % 64 != 5) << i;
    Single k({2, 1, 64, KvType::kF16, KvType::kF16}, 128, 20, 8);
    const_cast<float*>(k.kv.key(0, 40))[5] = bad;
    k.kv.store_plain();
    for (const float v : run_int16(k.batch)) EXPECT_FALSE(std::isfinite(v));
  }
}

}  // namespace
}  // namespace isthmus
