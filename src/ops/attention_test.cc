#include "ops/attention.h"

#include <gtest/gtest.h>

#include "ops/attention_test_util.h"

namespace isthmus {
namespace {

using namespace attention_testing;  // NOLINT: its other half

TEST(AttentionTest, MatchesTheOracleForAllGroupsAndLengths) {
  for (size_t group = 1; group <= 9; ++group) {
    for (const size_t keys : {1u, 2u, 31u, 32u, 33u, 255u, 256u, 257u, 700u, 1500u}) {
      Single s({2 * group, 2, 64, KvType::kF32, KvType::kF32}, keys, 1, static_cast<uint32_t>(keys));
      s.kv.store_plain();
      EXPECT_LE(worst_error(run(s.batch), oracle(s.batch)), 2e-6) << group << ' ' << keys;
    }
  }
}

TEST(AttentionTest, HeadSizesAndTypes) {
  for (const size_t dim : {8u, 24u, 64u, 72u, 80u, 96u, 128u, 256u}) {
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8}) {
      const size_t tokens = 11;
      Single s({6, 2, dim, type, type}, 300, tokens, 3);
      s.kv.store_plain();
      const double limit = type == KvType::kF32 ? 3e-6 : type == KvType::kF16 ? 2e-3 : 2e-2;
      EXPECT_LE(worst_error(run(s.batch), oracle(s.batch)), limit) << dim << ' ' << kv_type_info(type).name;
    }
  }
  Single mixed({3, 1, 64, KvType::kBF16, KvType::kF16}, 300, 5, 4);
  mixed.kv.store_plain();
  EXPECT_LE(worst_error(run(mixed.batch), oracle(mixed.batch)), 2e-2);
}

constexpr KvType kCodes[] = {KvType::kQ8, KvType::kKivi8, KvType::kKivi4, KvType::kKivi2, KvType::kKivi1};

/// What the integer kernels round (queries to 16 bits, weights to 15) is far below what the codes round.
TEST(AttentionTest, IntegerProductsOfCodesAreNearTheirExpandedValues) {
  for (const KvType type : kCodes) {
    for (const size_t dim : {8u, 40u, 64u, 80u, 96u, 128u, 256u}) {
      Single coded({6, 2, dim, type, type}, 300, 11, 3);
      coded.kv.store_plain();
      Single plain({6, 2, dim, KvType::kF32, KvType::kF32}, 300, 11, 3);
      std::vector<float> row(dim);
      for (size_t i = 0; i < 2 * 300; ++i) {
        const KvBlockRef& from = coded.kv.blocks(i / 300)[i % 300 / kBlockKeys];
        const KvBlockRef& to = plain.kv.blocks(i / 300)[i % 300 / kBlockKeys];
        const size_t slot = i % 300 % kBlockKeys;
        kv_read(from.k_type, KvPart::kKey, from.k, slot, row.data(), dim);
        kv_write(KvType::kF32, KvPart::kKey, const_cast<std::byte*>(to.k), slot, row.data(), dim);
        kv_read(from.v_type, KvPart::kValue, from.v, slot, row.data(), dim);
        kv_write(KvType::kF32, KvPart::kValue, const_cast<std::byte*>(to.v), slot, row.data(), dim);
      }
      const auto want = run(plain.batch);
      const double limit = type == KvType::kKivi1 ? 4e-3 : type == KvType::kKivi2 ? 6e-4 : 3e-4;
      EXPECT_LE(worst_error(run(coded.batch), std::vector<double>(want.begin(), want.end())), limit)
          << dim << ' ' << kv_type_info(type).name;
    }
  }
}

TEST(AttentionTest, CodesTokenByTokenEqualOneBatch) {
  for (const KvType type : kCodes) {
    Single s({6, 2, 64, type, type}, 300, 40, 5);
    s.kv.store_plain();
    expect_same_token_by_token(s.batch);
  }
}

TEST(AttentionTest, EveryGroupAndHeadSizeOfCodesHasTheSameBitsEverywhere) {
  for (const size_t dim : {64u, 80u, 96u, 128u, 256u}) {
    for (size_t group = 1; group <= 8; ++group) {
      const KvType type = kCodes[(group + dim / 16) % std::size(kCodes)];
      Single s({group, 1, dim, type, type}, 333, 5, static_cast<uint32_t>(dim + group));
      s.kv.store_plain();
      for (QueryView& view : s.batch.views[0])
        view.first_key = view.end_key - 290;  // a window, blocks cut at both ends
      const auto reference = run(s.batch, 1, &attention_kernels_for(Isa::kScalar));
      for (const Isa isa : available_isas()) {
        expect_same(run(s.batch, 2, &attention_kernels_for(isa)), reference, "codes");
      }
    }
  }
}

TEST(AttentionTest, RandomBatchesMatchTheOracle) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Mixed mixed(seed * 101);
    const Geometry& g = mixed.batch.g;
    const auto coarse = [](KvType type) {
      return type == KvType::kQ8 || type == KvType::kBF16 ? 4e-2 : type == KvType::kF16 ? 5e-3 : 1e-5;
    };
    const double limit = std::max(coarse(g.k_type), coarse(g.v_type));
    EXPECT_LE(worst_error(run(mixed.batch), oracle(mixed.batch)), limit) << seed;
  }
}

TEST(AttentionTest, SameBitsOnEverySetAndThreadCount) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    Mixed mixed(seed * 77 + 5);
    const auto reference = run(mixed.batch, 1, &attention_kernels_for(Isa::kScalar));
    for (const Isa isa : available_isas()) {
      for (const size_t threads : {1u, 2u, 3u, 7u}) {
        const auto got = run(mixed.batch, threads, &attention_kernels_for(isa));
        expect_same(got, reference, std::string(isa_name(isa)).c_str());
      }
    }
  }
}

TEST(AttentionTest, LongContextSplitsOverThreads) {
  Single s({9, 3, 64, KvType::kF16, KvType::kF16}, 3000, 1, 9);
  s.kv.store_plain();
  const auto reference = run(s.batch, 1);
  for (const size_t threads : {2u, 3u, 7u, 40u}) expect_same(run(s.batch, threads), reference, "threads");
}

TEST(AttentionTest, TokenByTokenEqualsOneBatch) {
  for (uint32_t seed = 0; seed < 8; ++seed) expect_same_token_by_token(Mixed(seed * 31 + 2).batch);
}

TEST(AttentionTest, NullWindowTreeAndCapAreThePlainPath) {
  Single plain({4, 2, 64, KvType::kF16, KvType::kF16}, 500, 20, 11);
  plain.kv.store_plain();
  const auto reference = run(plain.batch);
  const std::vector<uint64_t> all(8, ~uint64_t{0});
  for (QueryView& view : plain.batch.views[0]) {
    view.tree_mask = all.data();
    view.tree_begin = 3;
  }
  expect_same(run(plain.batch), reference, "a tree that hides nothing");
  // The oldest blocks are gone: a window must never touch them.
  Single window({4, 2, 64, KvType::kF16, KvType::kF16}, 500, 20, 11);
  window.kv.store_plain();
  for (QueryView& view : window.batch.views[0]) view.first_key = 320;
  const auto kept = run(window.batch);
  for (size_t h = 0; h < 2; ++h) {
    for (size_t b = 0; b < 10; ++b) window.kv.blocks(h)[b] = {};
  }
  expect_same(run(window.batch), kept, "absent blocks");
}

TEST(AttentionTest, KeyEncodingsAgree) {
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalf}) {
    for (const size_t tokens : {1u, 19u}) {
      const RopeTable rope = make_rope(style, tokens == 1 ? 64 : 48, tokens == 1);
      Single s({6, 2, 64, KvType::kF32, KvType::kF32}, 600, tokens, 21);
      s.kv.store([](size_t) { return KeyEncoding::kAbsolute; }, &rope);
      Batch rotated = s.batch;
      for (size_t t = 0; t < tokens; ++t) {
        rope.rotate(s.batch.views[0][t].pos, rotated.q.data() + t * rotated.row(), 6, 64);
      }
      const auto reference = run(rotated);
      EXPECT_LE(worst_error(reference, oracle(s.batch, &rope)), 1e-5);

      s.batch.rope = &rope;  // from here on queries come unrotated
      const auto check = [&](const std::function<KeyEncoding(size_t)>& encoding, const char* what) {
        s.kv.store(encoding, &rope);
        const auto got = run(s.batch);
        double worst = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          worst = std::max(worst, static_cast<double>(std::abs(got[i] - reference[i])));
        }
        EXPECT_LE(worst, 1e-5) << what;
        expect_same(run(s.batch, 3), got, what);
      };
      check([](size_t) { return KeyEncoding::kAbsolute; }, "absolute");
      check([](size_t) { return KeyEncoding::kBlockRelative; }, "relative");
      check([](size_t) { return KeyEncoding::kUnrotated; }, "unrotated");
      check([](size_t b) { return static_cast<KeyEncoding>(b % 3); }, "mixed");
    }
  }
}

TEST(AttentionTest, ShiftingAllPositionsChangesNothing) {
  const RopeTable rope = make_rope(RopeStyle::kHalf, 64, false);
  Single s({3, 1, 64, KvType::kF32, KvType::kF32}, 400, 4, 22);
  s.kv.store([](size_t) { return KeyEncoding::kBlockRelative; }, &rope);
  s.batch.rope = &rope;
  const auto reference = run(s.batch);
  for (KvBlockRef& block : s.kv.blocks(0)) block.base_pos += 1234;
  for (QueryView& view : s.batch.views[0]) view.pos += 1234;
  expect_same(run(s.batch), reference, "only distances matter");
}

TEST(AttentionTest, BlocksOfOneStreamMayDifferInType) {
  for (const size_t tokens : {1u, 30u}) {
    Single s({6, 2, 64, KvType::kF32, KvType::kF32}, 700, tokens, 31, true);
    s.kv.store_plain();
    const auto got = run(s.batch);
    EXPECT_LE(worst_error(got, oracle(s.batch)), 2e-2);
    expect_same_everywhere(s.batch, got, "mixed types");
  }
}

TEST(AttentionTest, SlotsThatAreNotValidAreSeenByNobody) {
  for (const size_t tokens : {1u, 30u}) {
    Single s({6, 2, 64, KvType::kF32, KvType::kF32}, 700, tokens, 32);
    s.kv.store_plain();
    for (size_t j = 0; j < 600; ++j) {
      if (j % 3 == 1 || (j >= 256 && j < 512)) s.kv.hide(j);  // a whole range, too
    }
    const auto got = run(s.batch);
    EXPECT_LE(worst_error(got, oracle(s.batch)), 3e-6);
    expect_same_everywhere(s.batch, got, "holes");
  }
}

TEST(AttentionTest, HiddenSlotsStayHiddenOnAPathOfATree) {
  Single s({6, 2, 64, KvType::kF32, KvType::kF32}, 300, 6, 33);
  s.kv.store_plain();
  for (const size_t j : {3u, 288u, 290u, 293u}) s.kv.hide(j);  // the tree begins inside this last block
  const std::vector<uint64_t> mask = {0b100101};
  for (QueryView& view : s.batch.views[0]) {
    view.end_key = 300;
    view.tree_mask = mask.data();
    view.tree_begin = 294;
  }
  const auto got = run(s.batch);
  EXPECT_LE(worst_error(got, oracle(s.batch)), 3e-6);
  expect_same_everywhere(s.batch, got, "holes and a tree");
}

TEST(AttentionTest, HeadsMayHoldDifferentPartsOfTheText) {
  for (const bool tree : {false, true}) {
    Single s({6, 2, 64, KvType::kF16, KvType::kF16}, 700, 20, 34);
    s.kv.store_plain();
    const std::vector<uint64_t> mask = {0xfffffffff};
    for (QueryView& view : s.batch.views[0]) {
      view.first_key = 256;
      if (tree) view.tree_mask = mask.data();
      view.tree_begin = 680;
    }
    const auto windowed = run(s.batch);
    s.kv.remove(1, 8);  // a whole soft-max range, so that even the order of sums stays
    expect_same(run(s.batch), windowed, "a head without the keys that the window hides");
    for (QueryView& view : s.batch.views[0]) view.first_key = 0;
    const auto apart = run(s.batch);
    const size_t half = s.batch.row() / 2;
    for (size_t t = 0; t < 20; ++t) {
      const float* now = apart.data() + t * s.batch.row();
      const float* before = windowed.data() + t * s.batch.row();
      EXPECT_NE(std::memcmp(now, before, half * sizeof(float)), 0) << "head 0 sees all keys again";
      EXPECT_EQ(std::memcmp(now + half, before + half, half * sizeof(float)), 0) << "head 1 has lost them";
    }
    expect_same_everywhere(s.batch, apart, "parts");
  }
}

TEST(AttentionTest, NothingToSeeGivesZeros) {
  Single s({3, 1, 64, KvType::kF16, KvType::kF16}, 100, 3, 23);
  s.kv.store_plain();
  for (QueryView& view : s.batch.views[0]) view.first_key = 100;
  for (const size_t threads : {1u, 2u}) {
    for (const float v : run(s.batch, threads)) ASSERT_EQ(v, 0.0f);
  }
}

TEST(AttentionTest, ThePlannedScratchIsEnough) {
  for (const size_t threads : {1u, 2u, 5u}) {
    Mixed mixed(3);
    std::vector<AttentionSeq> seqs;
    std::vector<float> out(mixed.batch.tokens() * mixed.batch.row());
    const AttentionArgs args = args_of(mixed.batch, seqs, out.data());
    const AttentionHeads heads{args.n_heads, args.n_kv_heads, args.head_dim};
    EXPECT_LE(attention_scratch_bytes(args, threads), attention_scratch_bytes(heads, 100, 1000, threads));
  }
}

TEST(AttentionTest, RunsInAPoolRegion) {
  Single s({9, 3, 64, KvType::kF16, KvType::kF16}, 1000, 40, 24);
  s.kv.store_plain();
  const auto reference = run(s.batch);
  std::vector<float> out(reference.size());
  std::vector<AttentionSeq> seqs;
  const AttentionArgs args = args_of(s.batch, seqs, out.data());
  ThreadPool pool(3, false);
  Bytes scratch = aligned_bytes(attention_scratch_bytes(args, pool.size()));
  std::memset(scratch.get(), 0, attention_counter_bytes());
  for (int layer = 0; layer < 5; ++layer) {
    pool.run([&](Worker& worker) { attention(args, scratch.get(), worker); });
    expect_same(out, reference, "pool");
  }
}

}  // namespace
}  // namespace isthmus
