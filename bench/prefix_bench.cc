// The prefix cache of a batch on a real model: time to the first token of a 20-token question behind a system
// prompt of 1,000 tokens, read cold and found in the cache.
//
//   ISTHMUS_BENCH_MODEL=model.gguf prefix_bench
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>

#include "base/rng.h"
#include "engine/batcher.h"

namespace isthmus {
namespace {

constexpr size_t kSystem = 1000;
constexpr size_t kQuestion = 20;

std::shared_ptr<LanguageModel> load_model(benchmark::State& state) {
  const char* path = std::getenv("ISTHMUS_BENCH_MODEL");
  if (path == nullptr) {
    state.SkipWithError("ISTHMUS_BENCH_MODEL must name a model file");
    return nullptr;
  }
  ModelOptions options;
  options.context = 2 * kSystem;
  options.threads = static_cast<size_t>(state.range(0));
  auto model = LanguageModel::load(path, std::move(options));
  if (!model.ok()) state.SkipWithError(model.status().to_string().c_str());
  return model.ok() ? *model : nullptr;
}

std::vector<TokenId> random_tokens(Rng& rng, size_t n, size_t vocab) {
  std::vector<TokenId> out(n);
  for (TokenId& token : out) token = static_cast<TokenId>(rng.below(std::min<size_t>(vocab, 30'000)));
  return out;
}

/// Arguments: threads, whether the system prompt is in the cache.
void ttft(benchmark::State& state) {
  const auto model = load_model(state);
  if (model == nullptr) return;
  auto batcher = std::move(Batcher::create(model)).value();
  Rng rng(1);
  const size_t vocab = model->config().vocab;
  const auto system = random_tokens(rng, kSystem, vocab);
  RunFigures figures;
  const auto ask = [&] {
    BatchRequest request;
    request.generate.prompt = system;
    for (const TokenId token : random_tokens(rng, kQuestion, vocab)) request.generate.prompt.push_back(token);
    request.generate.max_tokens = 1;
    request.generate.sampler.temperature = 0;
    request.on_done = [&](RequestId, Result<GenerateResult> result) { figures = result->figures; };
    (void)batcher->submit(std::move(request)).value();
    while (!batcher->idle()) batcher->step();
  };
  const bool hit = state.range(1) != 0;
  if (hit) ask();
  for (auto _ : state) {
    if (!hit) batcher->forget_prefixes();
    ask();
    state.SetIterationTime(figures.ttft_seconds);
  }
  state.counters["reused tokens"] = static_cast<double>(figures.reused_tokens);
}
BENCHMARK(ttft)
    ->ArgNames({"threads", "hit"})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Args({2, 0})
    ->Args({2, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();

}  // namespace
}  // namespace isthmus

BENCHMARK_MAIN();
