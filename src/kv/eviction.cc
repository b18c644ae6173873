#include "kv/eviction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace isthmus {
namespace {

constexpr std::array<std::pair<KvPolicy, std::string_view>, 10> kNames = {{
    {KvPolicy::kFull, "full"},
    {KvPolicy::kWindow, "window"},
    {KvPolicy::kStreaming, "streaming"},
    {KvPolicy::kRandom, "random"},
    {KvPolicy::kSnapKv, "snapkv"},
    {KvPolicy::kPyramidKv, "pyramidkv"},
    {KvPolicy::kAdaKv, "adakv"},
    {KvPolicy::kExpected, "expected"},
    {KvPolicy::kKeyDiff, "keydiff"},
    {KvPolicy::kKvZip, "kvzip"},
}};

KeyScorer scorer_of(KvPolicy policy) {
  switch (policy) {
    case KvPolicy::kFull:
    case KvPolicy::kWindow:
    case KvPolicy::kStreaming:
    case KvPolicy::kKvZip:
      return KeyScorer::kRecency;
    case KvPolicy::kRandom:
      return KeyScorer::kRandom;
    case KvPolicy::kSnapKv:
    case KvPolicy::kPyramidKv:
    case KvPolicy::kAdaKv:
      return KeyScorer::kObserved;
    case KvPolicy::kExpected:
      return KeyScorer::kExpected;
    case KvPolicy::kKeyDiff:
      return KeyScorer::kKeyDiff;
  }
  return KeyScorer::kRecency;
}

bool shares_heads(KvPolicy policy) {
  return policy == KvPolicy::kAdaKv || policy == KvPolicy::kExpected || policy == KvPolicy::kKvZip;
}

std::vector<size_t> pruned_layers(const AttentionGeometry& geometry) {
  std::vector<size_t> out;
  for (size_t layer = 0; layer < geometry.layers; ++layer) {
    if (geometry.pruned[layer]) out.push_back(layer);
  }
  return out;
}

size_t mean_budget(const EvictionOptions& options, size_t length) {
  if (options.tokens != 0) return std::min(options.tokens, length);
  const auto wanted = static_cast<size_t>(std::llround(options.share * static_cast<double>(length)));
  return std::min(length, std::max(wanted, options.sinks + options.window));
}

/// A head's places by falling score, protected ones left out.
std::vector<uint32_t> ranking(const std::vector<float>& scores, size_t sinks, size_t window) {
  const size_t keys = scores.size();
  const size_t first = std::min(sinks, keys);
  const size_t last = keys - std::min(window, keys - first);
  std::vector<uint32_t> order(last - first);
  std::iota(order.begin(), order.end(), static_cast<uint32_t>(first));
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  return order;
}

/// How many unprotected keys each head keeps when they compete for `total`, at least `least` each.
std::vector<size_t> compete(std::span<const std::vector<float>> scores,
                            const std::vector<std::vector<uint32_t>>& orders, size_t total, size_t least) {
  struct Candidate {
    float score;
    size_t head;
  };
  std::vector<size_t> counts(orders.size());
  std::vector<Candidate> rest;
  size_t taken = 0;
  for (size_t h = 0; h < orders.size(); ++h) {
    counts[h] = std::min(least, orders[h].size());
    taken += counts[h];
    for (size_t i = counts[h]; i < orders[h].size(); ++i) rest.push_back({scores[h][orders[h][i]], h});
  }
  std::stable_sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  for (size_t i = 0; i < rest.size() && taken < total; ++i, ++taken) ++counts[rest[i].head];
  return counts;
}

}  // namespace

std::string_view kv_policy_name(KvPolicy policy) {
  const auto* found =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == policy; });
  return found->second;
}

std::optional<KvPolicy> kv_policy_from_name(std::string_view name) {
  for (const auto& [policy, known] : kNames) {
    if (known == name) return policy;
  }
  return std::nullopt;
}

std::vector<std::string_view> kv_policy_list() {
  std::vector<std::string_view> out;
  out.reserve(kNames.size());
  for (const auto& named : kNames) out.push_back(named.second);
  return out;
}

std::string kv_policy_names() {
  std::string out;
  for (const std::string_view name : kv_policy_list()) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

bool EvictionOptions::needs_queries() const {
  const KeyScorer scorer = scorer_of(policy);
  return scorer == KeyScorer::kObserved || scorer == KeyScorer::kExpected;
}

Status check_eviction(const EvictionOptions& options) {
  if (options.policy == KvPolicy::kStreaming && options.tokens < sink_keys(options) + options.window) {
    return invalid_argument("streaming needs a budget as a number of keys, at least " +
                            std::to_string(sink_keys(options) + options.window));
  }
  if (options.tokens == 0 && !(options.share > 0.0 && options.share <= 1.0)) {
    return invalid_argument("a share of keys to keep is above 0 and at most 1");
  }
  const size_t least = options.sinks + options.window;
  if (options.tokens != 0 && options.tokens < least) {
    return invalid_argument("a budget of " + std::to_string(options.tokens) + " keys; the " +
                            std::to_string(options.sinks) + " first and " + std::to_string(options.window) +
                            " newest always stay");
  }
  return ok_status();
}

std::vector<size_t> layer_budgets(const EvictionOptions& options, size_t layers, size_t length) {
  const size_t mean = mean_budget(options, length);
  if (options.policy != KvPolicy::kPyramidKv || layers < 2 || mean == length) {
    return std::vector<size_t>(layers, mean);
  }
  // What is protected is every layer's; the rest falls from `most` to `least`, whose mean is the mean's.
  const size_t fixed = std::min(options.sinks + options.window, mean);
  const auto rest = static_cast<double>(mean - fixed);
  const double all = static_cast<double>(length - fixed);
  double least = rest / options.pyramid_beta;
  double most = 2 * rest - least;
  if (most > all) {
    most = all;
    least = 2 * rest - most;
  }
  std::vector<size_t> out(layers);
  double carry = 0;  // of rounding, so that the sum is right
  for (size_t i = 0; i < layers; ++i) {
    const double wanted =
        most - (most - least) * static_cast<double>(i) / static_cast<double>(layers - 1) + carry;
    const double whole = std::floor(wanted + 0.5);
    carry = wanted - whole;
    out[i] = fixed + static_cast<size_t>(std::clamp(whole, 0.0, all));
  }
  return out;
}

std::vector<std::vector<uint32_t>> choose_keys(std::span<const std::vector<float>> scores, size_t budget,
                                               size_t sinks, size_t window, bool shared, double floor) {
  std::vector<std::vector<uint32_t>> orders;
  std::vector<size_t> counts;
  size_t total = 0;
  for (const std::vector<float>& of_head : scores) {
    orders.push_back(ranking(of_head, sinks, window));
    const size_t fixed = of_head.size() - orders.back().size();
    counts.push_back(std::min(budget - std::min(budget, fixed), orders.back().size()));
    total += counts.back();
  }
  if (shared && !counts.empty()) {
    const double equal = static_cast<double>(total) / static_cast<double>(counts.size());
    counts = compete(scores, orders, total, static_cast<size_t>(floor * equal));
  }
  std::vector<std::vector<uint32_t>> kept;
  for (size_t h = 0; h < scores.size(); ++h) {
    const auto keys = static_cast<uint32_t>(scores[h].size());
    const auto first = static_cast<uint32_t>(std::min<size_t>(sinks, keys));
    const auto last = first + static_cast<uint32_t>(orders[h].size());
    std::vector<uint32_t> places(orders[h].begin(), orders[h].begin() + static_cast<ptrdiff_t>(counts[h]));
    for (uint32_t j = 0; j < first; ++j) places.push_back(j);
    for (uint32_t j = last; j < keys; ++j) places.push_back(j);
    std::sort(places.begin(), places.end());
    kept.push_back(std::move(places));
  }
  return kept;
}

Result<EvictionReport> evict(const EvictionOptions& options, const AttentionGeometry& geometry,
                             const QueryRecord* record, KvSequence& kv, ThreadPool& pool) {
  ISTHMUS_RETURN_IF_ERROR(check_eviction(options));
  if (options.policy == KvPolicy::kStreaming) {
    return failed_precondition("streaming gives up keys as the text grows, not at once");
  }
  if (options.rereads()) return failed_precondition("kvzip reads the text once more to score its keys");
  const std::vector<size_t> layers = pruned_layers(geometry);
  const size_t heads = geometry.n_kv_heads;
  const KeyScoring scoring{
      scorer_of(options.policy), options.window, options.kernel, 512, options.sinks, options.seed};
  std::vector<std::vector<float>> scores(layers.size() * heads);
  std::vector<Status> failures(pool.size());
  if (options.on()) {
    pool.run([&](Worker& worker) {
      for (size_t i = worker.index(); i < scores.size(); i += worker.count()) {
        Status status = score_keys(scoring, geometry, kv, record, layers[i / heads], i % heads, scores[i]);
        if (!status.ok()) failures[worker.index()] = std::move(status);
      }
    });
  }
  for (const Status& status : failures) ISTHMUS_RETURN_IF_ERROR(status);
  return evict_scored(options, geometry, scores, kv);
}

Result<EvictionReport> evict_scored(const EvictionOptions& options, const AttentionGeometry& geometry,
                                    std::span<const std::vector<float>> scores, KvSequence& kv) {
  ISTHMUS_RETURN_IF_ERROR(check_eviction(options));
  EvictionReport report;
  const std::vector<size_t> layers = pruned_layers(geometry);
  const size_t heads = geometry.n_kv_heads;
  const std::vector<size_t> budgets = layer_budgets(options, layers.size(), kv.length());
  if (scores.size() != layers.size() * heads) {
    return invalid_argument("scores of " + std::to_string(scores.size()) + " streams; " +
                            std::to_string(layers.size() * heads) + " may lose keys");
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    for (size_t h = 0; h < heads; ++h) report.keys_before += kv.held_keys(layers[i], h);
    if (options.on()) {
      const auto kept = choose_keys(scores.subspan(i * heads, heads), budgets[i], options.sinks,
                                    options.window, shares_heads(options.policy), options.ada_floor);
      for (size_t h = 0; h < heads; ++h) ISTHMUS_RETURN_IF_ERROR(kv.keep_keys(layers[i], h, kept[h]));
    }
    for (size_t h = 0; h < heads; ++h) report.keys_after += kv.held_keys(layers[i], h);
  }
  return report;
}

size_t sink_keys(const EvictionOptions& options) {
  return (options.sinks + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
}

Status slide(const EvictionOptions& options, KvSequence& kv) {
  if (kv.length() < options.tokens + kBlockKeys) return ok_status();
  return kv.drop_blocks(sink_keys(options) / kBlockKeys, (kv.length() - options.tokens) / kBlockKeys);
}

Status trim_window(const EvictionOptions& options, const AttentionGeometry& geometry, size_t budget,
                   KvSequence& kv) {
  // Whole blocks behind the first one: what is left needs no moving.
  const size_t sinks = sink_keys(options);
  for (size_t layer = 0; layer < geometry.layers; ++layer) {
    if (!geometry.pruned[layer]) continue;
    for (size_t h = 0; h < geometry.n_kv_heads; ++h) {
      const size_t held = kv.held_keys(layer, h);
      if (held < std::max(budget, sinks + options.window) + kBlockKeys) continue;
      const size_t gone = (held - std::max(budget, sinks + options.window)) / kBlockKeys * kBlockKeys;
      std::vector<uint32_t> kept(held - gone);
      std::iota(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(sinks), 0U);
      std::iota(kept.begin() + static_cast<ptrdiff_t>(sinks), kept.end(),
                static_cast<uint32_t>(sinks + gone));
      ISTHMUS_RETURN_IF_ERROR(kv.keep_keys(layer, h, kept));
    }
  }
  return ok_status();
}

}  // namespace isthmus
