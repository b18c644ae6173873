#include "kv/key_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "base/rng.h"
#include "kernels/float_kernels.h"
#include "kernels/generic/attention_kernels.h"

namespace isthmus {
namespace {

constexpr float kVeryBad = -std::numeric_limits<float>::infinity();

/// One stream's keys and values as float32, block by block.
class StreamReader {
 public:
  StreamReader(const KvSequence& kv, size_t layer, size_t head, size_t dim)
      : stream_(kv.stream(layer, head)), dim_(dim), part_(kBlockKeys * padded_dim(dim)) {}

  size_t keys() const { return stream_.keys; }
  size_t blocks() const { return (keys() + kBlockKeys - 1) / kBlockKeys; }
  size_t keys_of(size_t block) const { return std::min(kBlockKeys, keys() - block * kBlockKeys); }
  /// The keys of a block, [dim][32]; valid until the next call.
  const float* key_part(size_t block) {
    const KvBlockRef& ref = stream_.blocks[block];
    attention_kernels().expand_keys[static_cast<size_t>(ref.k_type)](ref.k, dim_, part_.data());
    return part_.data();
  }
  void read_key(size_t place, float* row) const { read(KvPart::kKey, place, row); }
  void read_value(size_t place, float* row) const { read(KvPart::kValue, place, row); }

 private:
  void read(KvPart part, size_t place, float* row) const {
    const KvBlockRef& ref = stream_.blocks[place / kBlockKeys];
    const bool key = part == KvPart::kKey;
    kv_read(key ? ref.k_type : ref.v_type, part, key ? ref.k : ref.v, place % kBlockKeys, row, dim_);
  }

  KvStreamRef stream_;
  size_t dim_;
  std::vector<float> part_;
};

/// Soft-max of x[n] in place.
void soft_max(std::span<float> x, float softcap) {
  const FloatKernels& kernels = float_kernels();
  if (softcap > 0) kernels.softcap(x.data(), softcap, x.size(), x.data());
  const float most = kernels.max(x.data(), x.size());
  const double sum = kernels.exp_shifted(x.data(), x.size(), most, 1.0f, x.data());
  kernels.mul_scalar(x.data(), static_cast<float>(1.0 / sum), x.size(), x.data());
}

/// rows [q][keys] of scores of queries that lie dim apart, times `scale`.
void score_rows(StreamReader& reader, const std::vector<float>& queries, size_t rows, size_t dim, float scale,
                std::vector<float>& out) {
  const AttentionKernels& kernels = attention_kernels();
  const size_t keys = reader.keys();
  out.resize(rows * keys);
  std::vector<float> block_scores(kernels.max_rows * kScoreStride);
  for (size_t block = 0; block < reader.blocks(); ++block) {
    const float* part = reader.key_part(block);
    for (size_t first = 0; first < rows; first += kernels.max_rows) {
      const size_t count = std::min(kernels.max_rows, rows - first);
      kernels.scores[static_cast<size_t>(KvType::kF32)](part, queries.data() + first * dim, dim, count, dim,
                                                        block_scores.data(), nullptr);
      for (size_t r = 0; r < count; ++r) {
        float* to = out.data() + (first + r) * keys + block * kBlockKeys;
        for (size_t j = 0; j < reader.keys_of(block); ++j) to[j] = block_scores[r * kScoreStride + j] * scale;
      }
    }
  }
}

/// The same for keys [begin, end) alone: column j of out, whose rows are `stride` long, is key begin + j.
void score_columns(StreamReader& reader, const std::vector<float>& queries, size_t rows, size_t dim,
                   float scale, size_t begin, size_t end, float* out, size_t stride) {
  const AttentionKernels& kernels = attention_kernels();
  std::vector<float> block_scores(kernels.max_rows * kScoreStride);
  for (size_t block = begin / kBlockKeys; block * kBlockKeys < end; ++block) {
    const float* part = reader.key_part(block);
    const size_t from = std::max(begin, block * kBlockKeys);
    const size_t to = std::min(end, (block + 1) * kBlockKeys);
    for (size_t first = 0; first < rows; first += kernels.max_rows) {
      const size_t count = std::min(kernels.max_rows, rows - first);
      kernels.scores[static_cast<size_t>(KvType::kF32)](part, queries.data() + first * dim, dim, count, dim,
                                                        block_scores.data(), nullptr);
      for (size_t r = 0; r < count; ++r) {
        const float* row = block_scores.data() + r * kScoreStride + from % kBlockKeys;
        for (size_t j = 0; j < to - from; ++j) out[(first + r) * stride + from - begin + j] = row[j] * scale;
      }
    }
  }
}

/// Averages over `kernel` neighbours, as a one-dimensional pooling with zeros beyond the ends does.
void smooth(std::vector<float>& x, size_t kernel) {
  if (kernel <= 1) return;
  const std::vector<float> from = x;
  const size_t half = kernel / 2;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t last = std::min(x.size(), i + half + 1);
    float sum = 0;
    for (size_t j = i > half ? i - half : 0; j < last; ++j) sum += from[j];
    x[i] = sum / static_cast<float>(kernel);
  }
}

/// The position after the newest token.
int32_t end_position(const KvSequence& kv) {
  return kv.length() == 0 ? 0 : static_cast<int32_t>(kv.position(kv.length() - 1)) + 1;
}

Status score_observed(const KeyScoring& scoring, const AttentionGeometry& geometry, const KvSequence& kv,
                      const QueryRecord& record, size_t layer, size_t head, std::vector<float>& scores) {
  const size_t window = std::min(scoring.window, record.recent(layer));
  if (window == 0 || record.end(layer) != end_position(kv)) {
    return failed_precondition("the queries at hand are not those of the text's newest tokens");
  }
  const size_t dim = geometry.head_dim;
  const size_t group = geometry.group();
  StreamReader reader(kv, layer, head, dim);
  const size_t keys = reader.keys();
  std::vector<float> queries(window * dim);
  std::vector<float> rows;
  scores.assign(keys, 0.0f);
  for (size_t g = 0; g < group; ++g) {
    const int32_t begin = end_position(kv) - static_cast<int32_t>(window);
    for (size_t i = 0; i < window; ++i) {
      std::copy_n(record.query(layer, head * group + g, begin + static_cast<int32_t>(i)), dim,
                  queries.data() + i * dim);
    }
    score_rows(reader, queries, window, dim, geometry.scale, rows);
    for (size_t i = 0; i < window; ++i) {
      // The newest keys are those of the window: query i sees all but the window - 1 - i last ones.
      const size_t unseen = std::min(window - 1 - i, keys);
      soft_max({rows.data() + i * keys, keys - unseen}, geometry.softcap);
      for (size_t j = 0; j + unseen < keys; ++j) scores[j] += rows[i * keys + j];
    }
  }
  for (float& score : scores) score /= static_cast<float>(group);
  smooth(scores, scoring.kernel);
  return ok_status();
}

/// Mean and covariance of a head's queries as they will be rotated, on average, at the next `horizon`
/// positions.
void turn_moments(const RopeTable& rope, int32_t first, size_t horizon, std::vector<float>& mean,
                  std::vector<float>& covariance) {
  const size_t dim = mean.size();
  std::vector<float> row(rope.row_floats());
  std::vector<float> average(rope.row_floats(), 0.0f);
  for (size_t i = 0; i < horizon; ++i) {
    rope.row(first + static_cast<int32_t>(i), row.data());
    for (size_t j = 0; j < row.size(); ++j) average[j] += row[j] / static_cast<float>(horizon);
  }
  rope.rotate_by(average.data(), mean.data(), 1, dim);
  const auto turn_rows = [&] { rope.rotate_by(average.data(), covariance.data(), dim, dim); };
  turn_rows();
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = i + 1; j < dim; ++j) std::swap(covariance[i * dim + j], covariance[j * dim + i]);
  }
  turn_rows();
}

/// scores += soft-max over keys [sinks, keys) of k.mean + k' covariance k / 2.
void add_expected(StreamReader& reader, const std::vector<float>& mean, const std::vector<float>& covariance,
                  size_t sinks, std::vector<float>& scores) {
  const FloatKernels& kernels = float_kernels();
  const size_t dim = mean.size();
  std::vector<float> logits(reader.keys());
  std::vector<float> key(dim);
  std::vector<float> product(dim);
  for (size_t j = 0; j < logits.size(); ++j) {
    reader.read_key(j, key.data());
    for (size_t i = 0; i < dim; ++i) product[i] = kernels.dot(covariance.data() + i * dim, key.data(), dim);
    logits[j] =
        kernels.dot(mean.data(), key.data(), dim) + 0.5f * kernels.dot(product.data(), key.data(), dim);
  }
  const size_t first = std::min(sinks, logits.size());
  soft_max(std::span(logits).subspan(first), 0.0f);
  for (size_t j = first; j < logits.size(); ++j) scores[j] += logits[j];
}

Status score_expected(const KeyScoring& scoring, const AttentionGeometry& geometry, const KvSequence& kv,
                      const QueryRecord& record, size_t layer, size_t head, std::vector<float>& scores) {
  if (!record.has_moments()) return failed_precondition("no mean and covariance of the queries at hand");
  // What the size of a value counts whatever the attention: far above the mean of a soft-max over a long
  // text, so that keys that nothing expects are ranked by their values (docs/kv.md: without it half of the
  // answers are lost).
  constexpr float kLeast = 0.01f;
  const size_t dim = geometry.head_dim;
  const size_t group = geometry.group();
  StreamReader reader(kv, layer, head, dim);
  scores.assign(reader.keys(), 0.0f);
  std::vector<float> mean;
  std::vector<float> covariance;
  for (size_t g = 0; g < group; ++g) {
    record.moments(layer, head * group + g, mean, covariance);
    for (float& x : mean) x *= geometry.scale;
    for (float& x : covariance) x *= geometry.scale * geometry.scale;
    turn_moments(*geometry.rope, end_position(kv), scoring.horizon, mean, covariance);
    add_expected(reader, mean, covariance, scoring.sinks, scores);
  }
  std::vector<float> value(dim);
  for (size_t j = 0; j < scores.size(); ++j) {
    reader.read_value(j, value.data());
    const float norm = std::sqrt(float_kernels().dot(value.data(), value.data(), dim));
    scores[j] = (scores[j] / static_cast<float>(group) + kLeast) * norm;
  }
  return ok_status();
}

void score_key_diff(const AttentionGeometry& geometry, const KvSequence& kv, size_t layer, size_t head,
                    std::vector<float>& scores) {
  const size_t dim = geometry.head_dim;
  const FloatKernels& kernels = float_kernels();
  StreamReader reader(kv, layer, head, dim);
  std::vector<float> keys(reader.keys() * dim);
  std::vector<float> mean(dim, 0.0f);
  for (size_t j = 0; j < reader.keys(); ++j) {
    float* key = keys.data() + j * dim;
    reader.read_key(j, key);
    const float norm = std::sqrt(kernels.dot(key, key, dim));
    kernels.mul_scalar(key, norm > 0 ? 1.0f / norm : 0.0f, dim, key);
    kernels.add(mean.data(), key, dim, mean.data());
  }
  const float norm = std::sqrt(kernels.dot(mean.data(), mean.data(), dim));
  const float part = norm > 0 ? -1.0f / norm : 0.0f;
  scores.resize(reader.keys());
  for (size_t j = 0; j < scores.size(); ++j)
    scores[j] = part * kernels.dot(keys.data() + j * dim, mean.data(), dim);
}

}  // namespace

Status raise_repeated(const AttentionGeometry& geometry, const KvSequence& kv, const QueryRecord& record,
                      size_t layer, size_t head, size_t queries, size_t first, size_t own,
                      std::vector<float>& scores) {
  const size_t length = kv.length();
  if (queries == 0 || queries > record.recent(layer) || record.end(layer) != end_position(kv)) {
    return failed_precondition("the queries at hand are not those of the text's newest tokens");
  }
  const size_t dim = geometry.head_dim;
  const size_t part = scores.size();
  const size_t stride = part + length - own;
  StreamReader reader(kv, layer, head, dim);
  const size_t removed = length - kv.held_keys(layer, head);
  std::vector<float> rotated(queries * dim);
  const int32_t begin = end_position(kv) - static_cast<int32_t>(queries);
  std::vector<float> rows(queries * stride);
  for (size_t g = 0; g < geometry.group(); ++g) {
    for (size_t i = 0; i < queries; ++i) {
      std::copy_n(record.query(layer, head * geometry.group() + g, begin + static_cast<int32_t>(i)), dim,
                  rotated.data() + i * dim);
    }
    score_columns(reader, rotated, queries, dim, geometry.scale, first - removed, first - removed + part,
                  rows.data(), stride);
    score_columns(reader, rotated, queries, dim, geometry.scale, own - removed, length - removed,
                  rows.data() + part, stride);
    for (size_t i = 0; i < queries; ++i) {
      float* row = rows.data() + i * stride;
      soft_max({row, stride - (queries - 1 - i)}, geometry.softcap);
      for (size_t j = 0; j < part; ++j) scores[j] = std::max(scores[j], row[j]);
    }
  }
  return ok_status();
}

Status score_keys(const KeyScoring& scoring, const AttentionGeometry& geometry, const KvSequence& kv,
                  const QueryRecord* record, size_t layer, size_t head, std::vector<float>& scores) {
  const size_t keys = kv.held_keys(layer, head);
  const bool asks = scoring.scorer == KeyScorer::kObserved || scoring.scorer == KeyScorer::kExpected;
  if (asks && record == nullptr) return failed_precondition("the queries of this text were not recorded");
  switch (scoring.scorer) {
    case KeyScorer::kRecency:
      scores.resize(keys);
      for (size_t j = 0; j < keys; ++j) scores[j] = static_cast<float>(j);
      break;
    case KeyScorer::kRandom: {
      Rng rng(scoring.seed + layer * geometry.n_kv_heads + head);
      scores.resize(keys);
      for (float& score : scores) score = static_cast<float>(rng() >> 40);
      break;
    }
    case KeyScorer::kObserved:
      ISTHMUS_RETURN_IF_ERROR(score_observed(scoring, geometry, kv, *record, layer, head, scores));
      break;
    case KeyScorer::kExpected:
      ISTHMUS_RETURN_IF_ERROR(score_expected(scoring, geometry, kv, *record, layer, head, scores));
      break;
    case KeyScorer::kKeyDiff:
      score_key_diff(geometry, kv, layer, head, scores);
      break;
  }
  // What is not a number must not upset the order; it goes first.
  for (float& score : scores) score = std::isnan(score) ? kVeryBad : score;
  return ok_status();
}

}  // namespace isthmus
