// A model of tests/golden/tiny, loaded, with a pool of KV blocks and a workspace: what the tests of the
// forward pass need.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "model/workspace.h"

namespace isthmus::testing {

struct Harness {
  Ledger ledger;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Transformer> model;
  std::shared_ptr<BlockPool> blocks;
  std::unique_ptr<Workspace> workspace;

  Harness(const std::string& name, Compute packing, size_t context = 1024, size_t threads = 2,
          KvType kv = KvType::kF32, KeyEncoding encoding = KeyEncoding::kAbsolute,
          const PackedCacheOptions& cache = {}) {
    // A name of tests/golden/tiny, or the whole path of a copy.
    auto file = GgufFile::open(name.starts_with('/') ? name : std::string(ISTHMUS_TINY_MODELS) + "/" + name);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    auto opened = Transformer::open(std::make_shared<const GgufFile>(std::move(*file)), packing, context);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    model = std::move(*opened);
    pool = std::make_unique<ThreadPool>(threads);
    const Status loaded = model->load(*pool, ledger, {}, {}, cache);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    RunShape shape{context, 512, 512, kv, kv, encoding};
    auto work = Workspace::create(*model, shape, threads, ledger);
    EXPECT_TRUE(work.ok()) << work.status().to_string();
    workspace = std::move(*work);
    shape.context *= 4;
    auto made = model->make_pool(shape, ledger);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    blocks = std::move(*made);
  }

  /// Appends `tokens` to `kv` in one step and returns their logits [tokens][vocab].
  std::vector<float> run(KvSequence& kv, const std::vector<TokenId>& tokens, Compute compute,
                         const std::vector<int32_t>& parents = {}) {
    EXPECT_TRUE(kv.grow(tokens.size()).ok());
    std::vector<uint32_t> outputs(tokens.size());
    std::iota(outputs.begin(), outputs.end(), 0U);
    std::vector<float> logits(tokens.size() * model->config().vocab);
    const ForwardSequence sequence{&kv, tokens, parents};
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = compute;
    step.outputs = outputs;
    step.logits = logits.data();
    const Status status = model->forward(step, *workspace, *pool);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (parents.empty()) kv.commit(tokens.size());
    return logits;
  }

  std::vector<float> run_fresh(const std::vector<TokenId>& tokens, Compute compute) {
    KvSequence kv = model->make_sequence(blocks);
    return run(kv, tokens, compute);
  }

  /// The logits of the newest token of a result of run().
  std::vector<float> last(const std::vector<float>& logits) const {
    return {logits.end() - static_cast<ptrdiff_t>(model->config().vocab), logits.end()};
  }
};

/// `n` tokens that depend on `seed` only.
inline std::vector<TokenId> some_tokens(size_t n, uint32_t seed) {
  std::vector<TokenId> out(n);
  for (auto& token : out) {
    seed = seed * 1664525U + 1013904223U;
    token = static_cast<TokenId>((seed >> 8) % 290);
  }
  return out;
}

}  // namespace isthmus::testing
