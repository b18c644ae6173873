#include "model/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "model/testing/golden.h"
#include "model/testing/harness.h"

namespace isthmus {
namespace {

using testing::Golden;
using testing::Harness;
using testing::some_tokens;

std::vector<std::string> golden_names() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(ISTHMUS_SOURCE_DIR "/tests/golden/tiny")) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".json.gz")) out.push_back(name.substr(0, name.size() - 8));
  }
  std::sort(out.begin(), out.end());
  return out;
}

Golden golden(const std::string& name) {
  auto read = testing::read_golden(ISTHMUS_SOURCE_DIR "/tests/golden/tiny/" + name + ".json.gz");
  EXPECT_TRUE(read.ok()) << read.status().to_string();
  return std::move(*read);
}

/// Mean KL of our logits to the golden ones, over all rows of all sequences.
double mean_kl(const Golden& reference, Compute packing, Compute compute) {
  double sum = 0;
  size_t rows = 0;
  for (const auto& sequence : reference.sequences) {
    Harness h(reference.model, packing, sequence.context);
    const auto logits = h.run_fresh(sequence.tokens, compute);
    for (size_t i = 0; i < sequence.positions.size(); ++i) {
      sum += testing::kl_divergence(sequence.logits[i],
                                    logits.data() + sequence.positions[i] * h.model->config().vocab);
      ++rows;
    }
  }
  return sum / static_cast<double>(rows);
}

class GoldenModel : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, Float32MatchesTheReference) {
  const Golden reference = golden(GetParam());
  for (const auto& sequence : reference.sequences) {
    Harness h(reference.model, Compute::kF32, sequence.context);
    const auto logits = h.run_fresh(sequence.tokens, Compute::kF32);
    for (size_t i = 0; i < sequence.positions.size(); ++i) {
      const float* row = logits.data() + sequence.positions[i] * h.model->config().vocab;
      // The reference computes GELU through a table of float16 values: gemma3 differs by more than rounding.
      EXPECT_LT(testing::kl_divergence(sequence.logits[i], row), 1e-5)
          << "position " << sequence.positions[i];
      for (size_t t = 0; t < sequence.logits[i].size(); ++t) {
        ASSERT_NEAR(row[t], sequence.logits[i][t], 2e-2)
            << "position " << sequence.positions[i] << " token " << t;
      }
    }
  }
}

TEST_P(GoldenModel, IntegerArithmeticIsAtLeastAsNearAsThePeer) {
  const Golden reference = golden(GetParam());
  const double int8 = mean_kl(reference, Compute::kInt16, Compute::kInt8);
  const double int16 = mean_kl(reference, Compute::kInt16, Compute::kInt16);
  EXPECT_LT(int16, 5e-6);
  // The peer's float16 KV and activations of its own are the bar; models of plain floats have no integer step
  // at all.
  EXPECT_LT(int8, std::max(5e-6, 1.1 * reference.peer_mean_kl));
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenModel, ::testing::ValuesIn(golden_names()), [](const auto& golden_info) {
  std::string name = golden_info.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

class Equality : public ::testing::TestWithParam<std::tuple<const char*, Compute>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  Compute compute() const { return std::get<1>(GetParam()); }
};

TEST_P(Equality, AnySplitIntoStepsGivesTheSameBits) {
  Harness h(model(), Compute::kInt16);
  const auto tokens = some_tokens(150, 1);
  const auto whole = h.run_fresh(tokens, compute());
  for (const size_t step : {1, 2, 3, 31, 32, 33, 100}) {
    KvSequence kv = h.model->make_sequence(h.blocks);
    std::vector<float> parts;
    for (size_t at = 0; at < tokens.size(); at += step) {
      const size_t n = std::min(step, tokens.size() - at);
      const auto part = h.run(
          kv, {tokens.begin() + static_cast<ptrdiff_t>(at), tokens.begin() + static_cast<ptrdiff_t>(at + n)},
          compute());
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(whole, parts) << "steps of " << step;
  }
}

TEST_P(Equality, AnyThreadCountGivesTheSameBits) {
  const auto tokens = some_tokens(70, 2);
  std::vector<float> expected;
  for (const size_t threads : {1, 2, 3, 7}) {
    Harness h(model(), Compute::kInt16, 1024, threads);
    KvSequence kv = h.model->make_sequence(h.blocks);
    auto got = h.run(kv, tokens, compute());
    const auto more = h.run(kv, {5}, compute());
    got.insert(got.end(), more.begin(), more.end());
    if (expected.empty()) expected = got;
    EXPECT_EQ(expected, got) << threads << " threads";
  }
}

TEST_P(Equality, SequencesInOneBatchDoNotTouchEachOther) {
  Harness h(model(), Compute::kInt16);
  const std::vector<std::vector<TokenId>> texts = {some_tokens(40, 3), some_tokens(1, 4), some_tokens(65, 5)};
  std::vector<std::vector<float>> alone;
  for (const auto& text : texts) alone.push_back(h.run_fresh(text, compute()));

  std::vector<KvSequence> kvs;
  std::vector<ForwardSequence> sequences;
  size_t tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) kvs.push_back(h.model->make_sequence(h.blocks));
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_TRUE(kvs[i].grow(texts[i].size()).ok());
    sequences.push_back({&kvs[i], texts[i], {}});
    tokens += texts[i].size();
  }
  std::vector<uint32_t> outputs(tokens);
  std::iota(outputs.begin(), outputs.end(), 0U);
  std::vector<float> logits(tokens * h.model->config().vocab);
  ForwardStep step;
  step.sequences = sequences;
  step.compute = compute();
  step.outputs = outputs;
  step.logits = logits.data();
  ASSERT_TRUE(h.model->forward(step, *h.workspace, *h.pool).ok());
  auto at = logits.begin();
  for (const auto& expected : alone) {
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), at));
    at += static_cast<ptrdiff_t>(expected.size());
  }
}

TEST_P(Equality, ForksTruncationAndSnapshotsEqualAFreshRun) {
  Harness h(model(), Compute::kInt16);
  const auto prompt = some_tokens(45, 6);
  const auto a = some_tokens(40, 7);
  const auto b = some_tokens(40, 8);
  KvSequence kv = h.model->make_sequence(h.blocks);
  h.run(kv, prompt, compute());
  const KvSequence snapshot = kv.fork();
  KvSequence other = kv.fork();
  const auto after_a = h.run(kv, a, compute());
  const auto after_b = h.run(other, b, compute());

  auto joined = prompt;
  joined.insert(joined.end(), a.begin(), a.end());
  EXPECT_EQ(h.last(h.run_fresh(joined, compute())), h.last(after_a));
  ASSERT_TRUE(kv.truncate(prompt.size()).ok());
  EXPECT_EQ(h.run(kv, b, compute()), after_b);
  KvSequence restored = snapshot.fork();
  EXPECT_EQ(h.run(restored, a, compute()), after_a);
  ASSERT_TRUE(restored.truncate(32).ok());
  const std::vector<TokenId> rest(prompt.begin() + 32, prompt.end());
  h.run(restored, rest, compute());
  EXPECT_EQ(h.run(restored, a, compute()), after_a);
}

class TreeEquality : public ::testing::TestWithParam<std::tuple<const char*, Compute, size_t>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  Compute compute() const { return std::get<1>(GetParam()); }
};

TEST_P(TreeEquality, APathOfATokenTreeEqualsThePathAlone) {
  Harness h(model(), Compute::kInt16);
  const auto prompt = some_tokens(std::get<2>(GetParam()), 9);
  // 0 - 1 - 2 and 0 - 3 - 4 - 5 below the prompt, and a second root 6.
  const std::vector<TokenId> tree = {11, 12, 13, 14, 15, 16, 17};
  const std::vector<int32_t> parents = {-1, 0, 1, 0, 3, 4, -1};
  KvSequence kv = h.model->make_sequence(h.blocks);
  h.run(kv, prompt, compute());
  KvSequence plain = kv.fork();
  const auto tree_logits = h.run(kv, tree, compute(), parents);
  const std::vector<uint32_t> path = {0, 3, 4, 5};
  const auto alone = h.run(plain, {11, 14, 15, 16}, compute());
  const size_t vocab = h.model->config().vocab;
  for (size_t i = 0; i < path.size(); ++i) {
    const auto row = tree_logits.begin() + static_cast<ptrdiff_t>(path[i] * vocab);
    EXPECT_TRUE(std::equal(row, row + static_cast<ptrdiff_t>(vocab),
                           alone.begin() + static_cast<ptrdiff_t>(i * vocab)))
        << "node " << path[i];
  }
  ASSERT_TRUE(kv.accept(path).ok());
  EXPECT_EQ(kv.length(), plain.length());
  EXPECT_EQ(h.run(kv, some_tokens(40, 10), compute()), h.run(plain, some_tokens(40, 10), compute()));
}

INSTANTIATE_TEST_SUITE_P(Tiny, Equality,
                         ::testing::Combine(::testing::Values("llama.gguf", "gemma3.gguf", "qwen3.gguf",
                                                              "type-q4_k.gguf", "type-q5_0.gguf"),
                                            ::testing::Values(Compute::kInt8, Compute::kInt16)));

// Prompts that end inside a block, at a block's border, and just before a soft-max range ends inside the
// tree.
INSTANTIATE_TEST_SUITE_P(Tiny, TreeEquality,
                         ::testing::Combine(::testing::Values("llama.gguf", "gemma3.gguf", "type-q4_k.gguf"),
                                            ::testing::Values(Compute::kInt8, Compute::kInt16),
                                            ::testing::Values(37, 64, 254, 255, 256, 511)));

class Encoding : public ::testing::TestWithParam<std::tuple<const char*, KeyEncoding>> {
 protected:
  Harness make(KeyEncoding encoding) const {
    return Harness(std::get<0>(GetParam()), Compute::kInt16, 1024, 2, KvType::kF32, encoding);
  }
  KeyEncoding encoding() const { return std::get<1>(GetParam()); }
};

TEST_P(Encoding, TheWayKeysAreStoredOnlyChangesRounding) {
  Harness absolute = make(KeyEncoding::kAbsolute);
  Harness other = make(encoding());
  const auto tokens = some_tokens(150, 21);
  const auto expected = absolute.run_fresh(tokens, Compute::kInt16);
  const auto got = other.run_fresh(tokens, Compute::kInt16);
  const size_t vocab = other.model->config().vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> row(expected.begin() + static_cast<ptrdiff_t>(i * vocab),
                                 expected.begin() + static_cast<ptrdiff_t>((i + 1) * vocab));
    ASSERT_LT(testing::kl_divergence(row, got.data() + i * vocab), 1e-6) << "token " << i;
  }
}

TEST_P(Encoding, AnySplitForkAndTruncationGivesTheSameBits) {
  Harness h = make(encoding());
  const auto tokens = some_tokens(100, 22);
  const auto whole = h.run_fresh(tokens, Compute::kInt16);
  KvSequence kv = h.model->make_sequence(h.blocks);
  h.run(kv, {tokens.begin(), tokens.begin() + 45}, Compute::kInt16);
  KvSequence other = kv.fork();
  h.run(kv, some_tokens(30, 23), Compute::kInt16);
  ASSERT_TRUE(kv.truncate(45).ok());
  for (KvSequence* sequence : {&kv, &other}) {
    const auto rest = h.run(*sequence, {tokens.begin() + 45, tokens.end()}, Compute::kInt16);
    EXPECT_EQ(h.last(rest), h.last(whole));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, Encoding,
    ::testing::Combine(::testing::Values("llama.gguf", "llama-yarn.gguf", "gemma3.gguf", "phi3.gguf"),
                       ::testing::Values(KeyEncoding::kBlockRelative, KeyEncoding::kUnrotated)));

// In a model of one layer a key depends on its token alone, so what is left after dropping blocks is what a
// fresh run over the tokens that are left would have stored.
TEST(Transformer, DroppingBlocksOfAOneLayerModelEqualsAFreshRun) {
  for (const KeyEncoding encoding : {KeyEncoding::kBlockRelative, KeyEncoding::kUnrotated}) {
    Harness h("type-q4_k.gguf", Compute::kInt16, 1024, 2, KvType::kF16, encoding);
    auto tokens = some_tokens(330, 24);
    KvSequence kv = h.model->make_sequence(h.blocks);
    h.run(kv, tokens, Compute::kInt16);
    ASSERT_TRUE(kv.drop_blocks(1, 5).ok());
    tokens.erase(tokens.begin() + 32, tokens.begin() + 192);
    const auto more = some_tokens(40, 25);
    const auto slid = h.run(kv, more, Compute::kInt16);
    KvSequence fresh = h.model->make_sequence(h.blocks);
    h.run(fresh, tokens, Compute::kInt16);
    EXPECT_EQ(h.run(fresh, more, Compute::kInt16), slid);
  }
}

TEST(Transformer, RefusesTreesAndMixturesThatAnEncodingCannotServe) {
  Harness h("llama.gguf", Compute::kInt16, 1024, 2, KvType::kF32, KeyEncoding::kBlockRelative);
  RunShape shape{64, 512, 512, KvType::kF32, KvType::kF32};
  auto plain = h.model->make_pool(shape, h.ledger);
  ASSERT_TRUE(plain.ok());
  KvSequence relative = h.model->make_sequence(h.blocks);
  KvSequence absolute = h.model->make_sequence(*plain);
  const std::vector<TokenId> tokens = {1, 2};
  const std::vector<int32_t> parents = {-1, -1};
  ASSERT_TRUE(relative.grow(2).ok());
  ASSERT_TRUE(absolute.grow(2).ok());
  ForwardStep step;
  step.compute = Compute::kInt16;
  const ForwardSequence tree{&relative, tokens, parents};
  step.sequences = {&tree, 1};
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kUnsupported);
  const ForwardSequence both[] = {{&relative, tokens, {}}, {&absolute, tokens, {}}};
  step.sequences = both;
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kInvalidArgument);
}

TEST(Transformer, RefusesWhatCannotBeRun) {
  Harness h("llama.gguf", Compute::kInt16);
  KvSequence kv = h.model->make_sequence(h.blocks);
  ASSERT_TRUE(kv.grow(1).ok());
  ForwardStep step;
  const std::vector<TokenId> bad = {static_cast<TokenId>(h.model->config().vocab)};
  ForwardSequence sequence{&kv, bad, {}};
  step.sequences = {&sequence, 1};
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kInvalidArgument);
  const std::vector<TokenId> good = {1};
  sequence.tokens = good;
  step.compute = Compute::kF32;
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kInvalidArgument);
  step.compute = Compute::kInt16;
  const std::vector<int32_t> own_parent = {0};
  sequence.parents = own_parent;
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kInvalidArgument);
  sequence.parents = {};
  EXPECT_TRUE(h.model->forward(step, *h.workspace, *h.pool).ok());
  const std::vector<TokenId> two = {1, 2};
  sequence.tokens = two;
  EXPECT_EQ(h.model->forward(step, *h.workspace, *h.pool).code(), Code::kFailedPrecondition);
}

TEST(Transformer, MemoryBeyondTheLedgerIsRefusedBeforeItIsTaken) {
  auto file = GgufFile::open(std::string(ISTHMUS_TINY_MODELS) + "/llama.gguf");
  ASSERT_TRUE(file.ok());
  auto model = Transformer::open(std::make_shared<const GgufFile>(std::move(*file)), Compute::kInt16, 64);
  ASSERT_TRUE(model.ok());
  Ledger ledger((*model)->weight_bytes() - 1);
  ThreadPool pool(1);
  EXPECT_EQ((*model)->load(pool, ledger).code(), Code::kResourceExhausted);
  EXPECT_EQ(ledger.used(), 0U);
}

}  // namespace
}  // namespace isthmus
