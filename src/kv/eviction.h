// Eviction: which keys of a sequence stay when it is to hold fewer. Budgets by layer and head, the choice by
// scores, and the policies under their published names.
//
// Vocabulary: a *budget* is how many keys a stream may hold; *protected* keys (the first `sinks` and the
// newest `window`) stay whatever their score. Layers that AttentionGeometry::pruned does not name keep all.
// What is computed with a sequence that gave up keys is approximate; nothing here happens unless it is asked
// for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/key_scores.h"
#include "kv/query_record.h"
#include "kv/sequence.h"
#include "threads/pool.h"

namespace isthmus {

enum class KvPolicy : uint8_t {
  kFull,       // nothing goes
  kWindow,     // sinks and newest keys at their true positions, as the text grows
  kStreaming,  // StreamingLLM (arXiv 2309.17453): sinks and newest keys at their places in the cache, so that
               // the text has no end; needs keys that blocks carry along (KeyEncoding::kBlockRelative)
  kRandom,     // the control
  kSnapKv,     // arXiv 2404.14469
  kPyramidKv,  // the same scores, budgets that shrink with depth; Cai et al. 2024, arXiv 2406.02069
  kAdaKv,      // the same scores, a layer's budget shared among its heads by need; Feng et al. 2024, arXiv
               // 2407.11550
  kExpected,   // Expected Attention, heads as in kAdaKv
  kKeyDiff,    // arXiv 2504.15364
  kKvZip,      // arXiv 2505.23416: what the model looks at when it repeats the text, heads as in kAdaKv
};

/// "full", "window", "streaming", "random", "snapkv", "pyramidkv", "adakv", "expected", "keydiff", "kvzip".
std::string_view kv_policy_name(KvPolicy policy);
std::optional<KvPolicy> kv_policy_from_name(std::string_view name);
/// The names of all, and the same with commas for messages.
std::vector<std::string_view> kv_policy_list();
std::string kv_policy_names();

struct EvictionOptions {
  KvPolicy policy = KvPolicy::kFull;
  /// What stays, on average over the streams that may lose keys: a share of the text's tokens in (0, 1], or,
  /// when `tokens` is not 0, so many keys.
  double share = 0.5;
  size_t tokens = 0;
  size_t sinks = 4;
  size_t window = 32;
  size_t kernel = 5;
  double pyramid_beta = 20.0;  // first layer's budget over the last one's, arXiv 2406.02069
  double ada_floor = 0.2;      // share of its equal budget that each head keeps
  uint64_t seed = 1;

  bool on() const { return policy != KvPolicy::kFull; }
  /// Whether scores are made by reading the text once more: then evict() is not enough, evict_scored() is.
  bool rereads() const { return policy == KvPolicy::kKvZip; }
  /// What a QueryRecord must hold.
  bool needs_queries() const;
  bool needs_moments() const { return policy == KvPolicy::kExpected; }
};

/// kInvalidArgument for kStreaming without a count, a share outside (0, 1] or a budget that the protected
/// keys alone exceed.
Status check_eviction(const EvictionOptions& options);

/// Keys that each layer that may lose keys (`layers` of them, first to last) keeps in each of its heads, of
/// `length`; their mean is the budget of `options`, unless that exceeds the text. PyramidKV: linear from
/// first to last.
std::vector<size_t> layer_budgets(const EvictionOptions& options, size_t layers, size_t length);

/// The places to keep in each of a layer's heads, ascending, for `budget` keys a head on average.
/// scores[head][held keys], lower places win ties. `shared`: the heads compete for the layer's whole budget
/// above `floor` of each.
std::vector<std::vector<uint32_t>> choose_keys(std::span<const std::vector<float>> scores, size_t budget,
                                               size_t sinks, size_t window, bool shared, double floor);

struct EvictionReport {
  uint64_t keys_before = 0;  // over all streams that may lose keys
  uint64_t keys_after = 0;
};

/// Brings a sequence down to its budget. `record` may be null where needs_queries() is false. The sequence
/// stays whole and usable after any error; streams done before it have lost their keys.
Result<EvictionReport> evict(const EvictionOptions& options, const AttentionGeometry& geometry,
                             const QueryRecord* record, KvSequence& kv, ThreadPool& pool);

/// The same by scores made elsewhere: [layers that may lose keys][kv head][held keys].
Result<EvictionReport> evict_scored(const EvictionOptions& options, const AttentionGeometry& geometry,
                                    std::span<const std::vector<float>> scores, KvSequence& kv);

/// Keys at the front that kWindow and kStreaming never give up while a text grows: the sinks in whole blocks.
size_t sink_keys(const EvictionOptions& options);

/// For kStreaming after each step: takes the oldest blocks behind the sinks out of all streams once the
/// sequence holds a block more than its budget; what follows moves up.
Status slide(const EvictionOptions& options, KvSequence& kv);

/// For kWindow while a text grows: gives up the oldest keys after the sinks once a stream holds a block
/// more than its budget, whole blocks at a time where they lie whole. Cheap when there is nothing to do.
Status trim_window(const EvictionOptions& options, const AttentionGeometry& geometry, size_t budget,
                   KvSequence& kv);

}  // namespace isthmus
