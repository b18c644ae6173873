// Whole models on tiles: prompts in class `fast`, and class `int` through tiles. Each test runs in a fresh
// process that is forced to the modelled tiles, where AVX-512 is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/isa.h"
#include "model/testing/golden.h"
#include "model/testing/harness.h"

namespace isthmus {
namespace {

using testing::Harness;
using testing::some_tokens;

bool has_model_of_tiles() {
  return std::ranges::find(testable_isas(), Isa::kAmxModel) != testable_isas().end();
}

/// Ends the process: 0 when `holds()` does on modelled tiles.
template <class Claim>
[[noreturn]] void exit_with(const Claim& holds) {
  setenv("ISTHMUS_ISA", "amx-model", 1);
  const auto isa = active_isa();
  std::exit(isa.ok() && *isa == Isa::kAmxModel && holds() ? 0 : 1);
}

bool any_split_gives_the_same_bits(const char* name, Compute compute) {
  Harness h(name, Compute::kInt16);
  const auto tokens = some_tokens(75, 1);
  const auto whole = h.run_fresh(tokens, compute);
  for (const ptrdiff_t first : {1, 2, 16, 33, 74}) {
    KvSequence kv = h.model->make_sequence(h.blocks);
    auto parts = h.run(kv, {tokens.begin(), tokens.begin() + first}, compute);
    const auto rest = h.run(kv, {tokens.begin() + first, tokens.end()}, compute);
    parts.insert(parts.end(), rest.begin(), rest.end());
    if (parts != whole || kv.computed_by() != compute_bit(compute)) return false;
  }
  return true;
}

bool any_thread_count_gives_the_same_bits(const char* name, Compute compute) {
  const auto tokens = some_tokens(70, 2);
  std::vector<float> expected;
  for (const size_t threads : {1, 2, 3}) {
    Harness h(name, Compute::kInt16, 1024, threads);
    const auto got = h.run_fresh(tokens, compute);
    if (expected.empty()) expected = got;
    if (got != expected) return false;
  }
  return true;
}

class TilesDeathTest : public ::testing::TestWithParam<std::tuple<const char*, Compute>> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(TilesDeathTest, SplitsAndThreadsChangeNothing) {
  if (!has_model_of_tiles()) {
    EXPECT_FALSE(parse_isa("amx-model").ok());
    return;
  }
  const auto [name, compute] = GetParam();
  EXPECT_EXIT(exit_with([name = name, compute = compute] {
                return any_split_gives_the_same_bits(name, compute) &&
                       any_thread_count_gives_the_same_bits(name, compute);
              }),
              ::testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Tiny, TilesDeathTest,
                         ::testing::Combine(::testing::Values("type-q4_k.gguf", "type-q6_k.gguf",
                                                              "gemma3.gguf", "type-f16.gguf"),
                                            ::testing::Values(Compute::kBf16, Compute::kInt16)));

/// Mean KL of the golden sequences of a tiny model to class `fast`.
double bf16_kl(const testing::Golden& reference) {
  double sum = 0;
  size_t rows = 0;
  for (const auto& sequence : reference.sequences) {
    Harness h(reference.model, Compute::kInt16, sequence.context);
    const auto logits = h.run_fresh(sequence.tokens, Compute::kBf16);
    for (size_t i = 0; i < sequence.positions.size(); ++i, ++rows) {
      sum += testing::kl_divergence(sequence.logits[i],
                                    logits.data() + sequence.positions[i] * h.model->config().vocab);
    }
  }
  return sum / static_cast<double>(rows);
}

TEST(TilesKlDeathTest, Bf16StaysNearFloat32) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* name : {"type-q4_0", "type-q4_1", "type-q4_k", "type-q6_k", "type-q8_0", "llama"}) {
    auto reference =
        testing::read_golden(std::string(ISTHMUS_SOURCE_DIR "/tests/golden/tiny/") + name + ".json.gz");
    ASSERT_TRUE(reference.ok()) << reference.status().to_string();
    if (!has_model_of_tiles()) continue;
    // A file of floats (llama) costs the peer no rounding of activations: it is nearer there.
    const double most = std::max(1.5e-4, reference->peer_mean_kl);
    EXPECT_EXIT(exit_with([&] { return bf16_kl(*reference) < most; }), ::testing::ExitedWithCode(0), "")
        << name;
  }
}

TEST(Tiles, Bf16StepsNeedThem) {
  Harness h("llama.gguf", Compute::kInt16);
  KvSequence kv = h.model->make_sequence(h.blocks);
  ASSERT_TRUE(kv.grow(1).ok());
  const std::vector<TokenId> token = {1};
  const ForwardSequence sequence{&kv, token, {}};
  ForwardStep step;
  step.sequences = {&sequence, 1};
  step.compute = Compute::kBf16;
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(),
            have_bf16() ? Code::kOk : Code::kUnsupported);
}

}  // namespace
}  // namespace isthmus
