// How much each key of a stream is worth keeping: the scorers of the eviction policies, one number per key,
// more is better. Formulas are those of the papers named; what they leave open is said here.
//
// Pure functions of the sequence and the record; thread-safe for different output vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/query_record.h"
#include "kv/sequence.h"

namespace isthmus {

enum class KeyScorer : uint8_t {
  kRecency,   // place: sinks and a window stay (StreamingLLM, Xiao et al. 2023, arXiv 2309.17453)
  kRandom,    // a hash of the seed and the key's place: the control
  kObserved,  // SnapKV (Li et al. 2024, arXiv 2404.14469): what the newest queries paid, smoothed over
              // neighbours
  kExpected,  // Expected Attention (Devoto et al. 2025, arXiv 2510.00636): what later queries will pay, times
              // |v|
  kKeyDiff,   // KeyDiff (Park et al. 2025, arXiv 2504.15364): how unlike the others a key is
};

struct KeyScoring {
  KeyScorer scorer = KeyScorer::kObserved;
  size_t window = 32;    // newest queries that kObserved asks
  size_t kernel = 5;     // neighbours that kObserved averages over, odd
  size_t horizon = 512;  // positions ahead over which kExpected averages the rotation
  size_t sinks = 4;      // first keys, which kExpected leaves out of its soft-max
  uint64_t seed = 1;     // of kRandom
};

/// KVzip (Kim et al. 2025, arXiv 2505.23416): raises scores[j] to the most attention that any of the newest
/// `queries` recorded queries of the head's group pays the key of token first + j. Those queries repeat a
/// part of the text, and the soft-max of each goes over that part's keys, of tokens [first, first +
/// scores.size()), and what was read behind the text, from token `own` on to the query's own. Keys of those
/// tokens are held.
Status raise_repeated(const AttentionGeometry& geometry, const KvSequence& kv, const QueryRecord& record,
                      size_t layer, size_t head, size_t queries, size_t first, size_t own,
                      std::vector<float>& scores);

/// scores[held keys] of one stream of a sequence without pending tokens. Scores of one layer's heads compare
/// with each other for kObserved and kExpected. kFailedPrecondition when the record lacks what the scorer
/// needs.
Status score_keys(const KeyScoring& scoring, const AttentionGeometry& geometry, const KvSequence& kv,
                  const QueryRecord* record, size_t layer, size_t head, std::vector<float>& scores);

}  // namespace isthmus
