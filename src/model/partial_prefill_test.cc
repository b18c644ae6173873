// Any tokens of a text computed anew in place, texts with gaps between positions, and texts put together of
// parts that were read apart.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "model/testing/harness.h"
#include "model/testing/plain_forward.h"

namespace isthmus {
namespace {

using testing::Harness;
using testing::PlainModel;
using testing::some_tokens;

constexpr const char* kFamilies[] = {"llama.gguf", "qwen2.gguf", "gemma3.gguf"};

/// Computes tokens `slots` of `kv`, whose text is `tokens`, anew in steps of `step` tokens.
Status recompute(Harness& h, KvSequence& kv, const std::vector<TokenId>& tokens,
                 const std::vector<uint32_t>& slots, Compute compute, size_t step_tokens = 512,
                 size_t layers = 0) {
  for (size_t at = 0; at < slots.size(); at += step_tokens) {
    const size_t n = std::min(step_tokens, slots.size() - at);
    const auto part = std::span(slots).subspan(at, n);
    ISTHMUS_RETURN_IF_ERROR(kv.reopen(part));
    std::vector<TokenId> values;
    for (const uint32_t slot : part) values.push_back(tokens[slot]);
    const ForwardSequence sequence{&kv, values, {}, nullptr, part};
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = compute;
    step.layers = layers;
    const Status status = h.model->forward(step, *h.workspace, *h.pool);
    kv.commit(0);
    ISTHMUS_RETURN_IF_ERROR(status);
  }
  return ok_status();
}

std::vector<uint32_t> some_slots(size_t length, size_t count, uint32_t seed) {
  std::vector<uint32_t> all(length);
  std::iota(all.begin(), all.end(), 0U);
  std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  all.resize(count);
  std::sort(all.begin(), all.end());
  return all;
}

/// Appends places without content for `tokens` and computes them all.
void append_computed(Harness& h, KvSequence& kv, const std::vector<TokenId>& tokens) {
  const size_t from = kv.length();
  ASSERT_TRUE(kv.append_blank(tokens.size(), Exactness::kExact).ok());
  std::vector<TokenId> text(from);
  text.insert(text.end(), tokens.begin(), tokens.end());
  std::vector<uint32_t> slots(tokens.size());
  std::iota(slots.begin(), slots.end(), static_cast<uint32_t>(from));
  ASSERT_TRUE(recompute(h, kv, text, slots, Compute::kF32).ok());
}

class PartialPrefill : public ::testing::TestWithParam<std::tuple<const char*, Compute>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  Compute compute() const { return std::get<1>(GetParam()); }
};

TEST_P(PartialPrefill, AnySubsetComputedAnewHasTheSameBits) {
  Harness h(model(), Compute::kInt16);
  const auto tokens = some_tokens(300, 3);
  KvSequence whole = h.model->make_sequence(h.blocks);
  h.run(whole, tokens, compute());
  const auto want = h.run(whole, {5, 6}, compute());
  for (const size_t count : {1, 30, 150, 300}) {
    for (const size_t step : {7, 64, 512}) {
      // Other text first, so that nothing right is there before it is computed.
      KvSequence kv = h.model->make_sequence(h.blocks);
      h.run(kv, tokens, compute());
      const auto slots = some_slots(tokens.size(), count, static_cast<uint32_t>(count + step));
      auto wrong = tokens;
      for (const uint32_t slot : slots) wrong[slot] = (wrong[slot] + 1) % 290;
      ASSERT_TRUE(recompute(h, kv, wrong, slots, compute()).ok());
      ASSERT_TRUE(recompute(h, kv, tokens, slots, compute(), step).ok());
      EXPECT_EQ(h.run(kv, {5, 6}, compute()), want) << count << " tokens in steps of " << step;
    }
  }
}

TEST_P(PartialPrefill, OneStepMayComputeAnewAndAppend) {
  Harness h(model(), Compute::kInt16);
  const auto tokens = some_tokens(100, 4);
  KvSequence whole = h.model->make_sequence(h.blocks);
  h.run(whole, tokens, compute());
  const auto want = h.last(h.run(whole, {7, 8, 9}, compute()));
  KvSequence kv = h.model->make_sequence(h.blocks);
  ASSERT_TRUE(kv.append_blank(100, Exactness::kExact).ok());
  ASSERT_TRUE(kv.grow(3).ok());
  std::vector<uint32_t> slots(103);
  std::iota(slots.begin(), slots.end(), 0U);
  ASSERT_TRUE(kv.reopen(std::span(slots).first(100)).ok());
  auto text = tokens;
  for (const TokenId token : {7, 8, 9}) text.push_back(token);
  const ForwardSequence sequence{&kv, text, {}, nullptr, slots};
  const uint32_t newest = 102;
  std::vector<float> logits(h.model->config().vocab);
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = compute();
  step.outputs = {&newest, 1};
  step.logits = logits.data();
  ASSERT_TRUE(h.model->forward(step, *h.workspace, *h.pool).ok());
  EXPECT_EQ(logits, want);
}

INSTANTIATE_TEST_SUITE_P(Families, PartialPrefill,
                         ::testing::Combine(::testing::ValuesIn(kFamilies),
                                            ::testing::Values(Compute::kInt16, Compute::kInt8)));

TEST(PartialPrefillTest, AForkKeepsWhatTheOtherComputesAnew) {
  Harness h("llama.gguf", Compute::kInt16);
  const auto tokens = some_tokens(70, 5);
  KvSequence first = h.model->make_sequence(h.blocks);
  h.run(first, tokens, Compute::kInt16);
  KvSequence second = first.fork();
  const auto want = h.run(first, {5}, Compute::kInt16);
  ASSERT_TRUE(first.truncate(70).ok());
  auto other = tokens;
  for (TokenId& token : other) token = (token + 1) % 290;
  std::vector<uint32_t> all(70);
  std::iota(all.begin(), all.end(), 0U);
  ASSERT_TRUE(recompute(h, second, other, all, Compute::kInt16).ok());
  EXPECT_EQ(h.run(first, {5}, Compute::kInt16), want);
  KvSequence fresh = h.model->make_sequence(h.blocks);
  h.run(fresh, other, Compute::kInt16);
  EXPECT_EQ(h.run(second, {5}, Compute::kInt16), h.run(fresh, {5}, Compute::kInt16));
}

TEST(PartialPrefillTest, OnlyTheFirstLayersMayBeRun) {
  Harness h("gemma3.gguf", Compute::kInt16);
  const auto tokens = some_tokens(40, 6);
  KvSequence whole = h.model->make_sequence(h.blocks);
  h.run(whole, tokens, Compute::kInt16);
  KvSequence kv = h.model->make_sequence(h.blocks);
  ASSERT_TRUE(kv.append_blank(40, Exactness::kComposed).ok());
  std::vector<uint32_t> all(40);
  std::iota(all.begin(), all.end(), 0U);
  ASSERT_TRUE(recompute(h, kv, tokens, all, Compute::kInt16, 512, 2).ok());
  for (size_t layer = 0; layer < 2; ++layer) {
    const KvStreamRef want = whole.stream(layer, 0);
    const KvStreamRef got = kv.stream(layer, 0);
    EXPECT_EQ(std::memcmp(want.blocks[0].k, got.blocks[0].k, h.blocks->block_bytes()), 0) << layer;
  }
}

TEST(PartialPrefillTest, BadRequestsAreNamed) {
  Harness h("llama.gguf", Compute::kInt16);
  const auto tokens = some_tokens(40, 7);
  KvSequence kv = h.model->make_sequence(h.blocks);
  h.run(kv, tokens, Compute::kInt16);
  const uint32_t beyond[] = {40};
  EXPECT_EQ(kv.reopen(beyond).code(), Code::kInvalidArgument);
  const uint32_t twice[] = {3, 3};
  EXPECT_EQ(kv.reopen(twice).code(), Code::kInvalidArgument);
  const uint32_t slot[] = {3};
  const TokenId token[] = {1};
  const ForwardSequence closed{&kv, token, {}, nullptr, slot};
  ForwardStep step;
  step.sequences = {&closed, 1};
  step.compute = Compute::kInt16;
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(kv.reopen(slot).ok());
  step.layers = 3;
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kInvalidArgument);
  EXPECT_EQ(kv.jump_to(39).code(), Code::kInvalidArgument);
  const uint32_t few[] = {0};
  ASSERT_TRUE(kv.keep_keys(0, 0, few).ok());
  EXPECT_EQ(kv.reopen(slot).code(), Code::kFailedPrecondition);
  EXPECT_EQ(kv.append_blank(1, Exactness::kExact).code(), Code::kFailedPrecondition);
}

TEST(PartialPrefillTest, RelativeKeysRefuseGaps) {
  Harness h("llama.gguf", Compute::kInt16, 1024, 2, KvType::kF16, KeyEncoding::kBlockRelative);
  KvSequence kv = h.model->make_sequence(h.blocks);
  EXPECT_TRUE(kv.jump_to(0).ok());
  EXPECT_EQ(kv.jump_to(1).code(), Code::kUnsupported);
}

class PlainOracle : public ::testing::TestWithParam<const char*> {
 protected:
  PlainOracle() : h_(GetParam(), Compute::kF32), plain_(path(), h_.model->config()) {}
  static std::string path() { return std::string(ISTHMUS_TINY_MODELS) + "/" + GetParam(); }

  /// The newest tokens' logits beside the oracle's.
  void expect_near(const std::vector<float>& got, const std::vector<PlainModel::Row>& want, size_t from) {
    const size_t vocab = h_.model->config().vocab;
    for (size_t i = 0; i < got.size() / vocab; ++i) {
      for (size_t t = 0; t < vocab; ++t) {
        ASSERT_NEAR(got[i * vocab + t], want[from + i][t], 2e-4) << "token " << from + i << ", logit " << t;
      }
    }
  }

  Harness h_;
  PlainModel plain_;
};

TEST_P(PlainOracle, AgreesOnAPlainText) {
  const auto tokens = some_tokens(60, 8);
  std::vector<size_t> positions(60);
  std::iota(positions.begin(), positions.end(), 0U);
  expect_near(h_.run_fresh(tokens, Compute::kF32),
              plain_.logits(tokens, positions, [](size_t, size_t) { return true; }), 0);
}

TEST_P(PlainOracle, GapsBetweenPositions) {
  const auto tokens = some_tokens(60, 9);
  std::vector<size_t> positions(60);
  KvSequence kv = h_.model->make_sequence(h_.blocks);
  const auto part = [&](size_t from, size_t to) {
    return std::vector<TokenId>(tokens.begin() + static_cast<ptrdiff_t>(from),
                                tokens.begin() + static_cast<ptrdiff_t>(to));
  };
  // Behind 20 tokens a small gap, which windows of 16 reach across, and behind 20 more one that they do not.
  for (size_t i = 0; i < 60; ++i) positions[i] = i + (i < 20 ? 0 : i < 40 ? 5 : 105);
  h_.run(kv, part(0, 20), Compute::kF32);
  ASSERT_TRUE(kv.jump_to(25).ok());
  h_.run(kv, part(20, 40), Compute::kF32);
  ASSERT_TRUE(kv.jump_to(145).ok());
  const auto got = h_.run(kv, part(40, 60), Compute::kF32);
  const auto want = plain_.logits(tokens, positions, [](size_t, size_t) { return true; });
  expect_near(got, want, 40);
  // A token tree's positions begin behind the gap, too.
  ASSERT_TRUE(kv.truncate(40).ok());
  std::vector<int32_t> chain(20);
  std::iota(chain.begin(), chain.end(), -1);
  expect_near(h_.run(kv, part(40, 60), Compute::kF32, chain), want, 40);
}

/// Two parts that were read apart behind a common beginning, tokens between them that are computed here, and
/// a question at the end.
TEST_P(PlainOracle, PartsReadApartAreAMaskedText) {
  const auto tokens = some_tokens(95, 10);
  const auto part = [&](size_t from, size_t to) {
    return std::vector<TokenId>(tokens.begin() + static_cast<ptrdiff_t>(from),
                                tokens.begin() + static_cast<ptrdiff_t>(to));
  };
  struct Piece {
    size_t from, to, position;
  };
  const Piece lead{0, 10, 0}, first{10, 45, 10}, argument{45, 48, 50}, second{48, 85, 60},
      question{85, 95, 130};
  std::vector<size_t> positions(95);
  for (const Piece& p : {lead, first, argument, second, question}) {
    for (size_t i = p.from; i < p.to; ++i) positions[i] = p.position + i - p.from;
  }
  KvSequence kv = h_.model->make_sequence(h_.blocks);
  h_.run(kv, part(lead.from, lead.to), Compute::kF32);
  const auto apart = [&](const Piece& p) {
    KvSequence one = kv.fork();
    EXPECT_TRUE(one.truncate(10).ok());
    EXPECT_TRUE(one.jump_to(p.position).ok());
    h_.run(one, part(p.from, p.to), Compute::kF32);
    return one;
  };
  const KvSequence one = apart(first);
  const KvSequence two = apart(second);
  ASSERT_TRUE(kv.append_copy(one, 10, first.to - first.from, Exactness::kComposed).ok());
  ASSERT_TRUE(kv.jump_to(argument.position).ok());
  append_computed(h_, kv, part(argument.from, argument.to));
  ASSERT_TRUE(kv.jump_to(second.position).ok());
  ASSERT_TRUE(kv.append_copy(two, 10, second.to - second.from, Exactness::kComposed).ok());
  ASSERT_TRUE(kv.jump_to(question.position).ok());
  const auto got = h_.run(kv, part(question.from, question.to), Compute::kF32);
  EXPECT_EQ(kv.exactness(), Exactness::kComposed);
  const auto sees = [&](size_t i, size_t j) {
    const bool in_second = i >= second.from && i < second.to;
    return !in_second || j < lead.to || j >= second.from;
  };
  const auto want = plain_.logits(tokens, positions, sees);
  expect_near(got, want, question.from);
  // The mask matters.
  const auto unmasked = plain_.logits(tokens, positions, [](size_t, size_t) { return true; });
  double apart_by = 0;
  for (size_t t = 0; t < want.back().size(); ++t)
    apart_by = std::max(apart_by, std::abs(want.back()[t] - unmasked.back()[t]));
  EXPECT_GT(apart_by, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Families, PlainOracle, ::testing::ValuesIn(kFamilies));

}  // namespace
}  // namespace isthmus
