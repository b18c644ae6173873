// Scores against slow float64 versions of the papers' formulas, budgets and choices against their
// definitions.
#include "kv/eviction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "base/rng.h"

namespace isthmus {
namespace {

constexpr size_t kEvictDim = 16;
constexpr size_t kEvictTokens = 150;

float bell_curve(Rng& rng) {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(rng() >> 11) * 0x1p-53;
  return static_cast<float>(sum - 6.0);
}

/// Two layers, the second left alone; two KV heads with two query heads each.
struct EvictScene {
  RopeTable rope = make_rope();
  AttentionGeometry geometry{2, 4, 2, kEvictDim, 0.25f, 0.0f, {true, false}, &rope};
  Ledger ledger{uint64_t{1} << 28};
  KvSequence kv;
  std::vector<std::vector<float>> keys;     // [kv head][token * dim], rotated
  std::vector<std::vector<float>> values;   // the same
  std::vector<std::vector<float>> queries;  // [head][token * dim], unrotated
  QueryRecord record{geometry, 32, true};

  static RopeTable make_rope() {
    RopeParams params;
    params.dims = kEvictDim;
    params.style = RopeStyle::kHalf;
    return RopeTable::create(params, 1024).value();
  }
  explicit EvictScene(uint64_t seed) {
    BlockPoolConfig config;
    config.k_type = config.v_type = KvType::kF32;
    config.head_dim = kEvictDim;
    config.blocks = 200;
    kv = KvSequence(BlockPool::create(config, ledger).value(), 2, 2);
    Rng rng(seed);
    const auto rows = [&](float shift) {
      std::vector<float> out(kEvictTokens * kEvictDim);
      for (float& x : out) x = bell_curve(rng) + shift;
      return out;
    };
    for (int h = 0; h < 2; ++h) keys.push_back(rows(0.3f)), values.push_back(rows(0.0f));
    for (int h = 0; h < 4; ++h) queries.push_back(rows(0.2f * static_cast<float>(h)));
    EXPECT_TRUE(kv.grow(kEvictTokens).ok());
    for (size_t layer = 0; layer < 2; ++layer) {
      for (size_t h = 0; h < 2; ++h)
        kv.write_rows(layer, h, 0, kEvictTokens, keys[h].data(), values[h].data(), kEvictDim);
    }
    kv.commit(kEvictTokens);
    // Rotated, in two steps, by two threads.
    std::vector<float> q(kEvictTokens * 4 * kEvictDim);
    for (size_t t = 0; t < kEvictTokens; ++t) {
      for (size_t h = 0; h < 4; ++h) {
        float* at = q.data() + (t * 4 + h) * kEvictDim;
        std::copy_n(queries[h].data() + t * kEvictDim, kEvictDim, at);
        rope.rotate(static_cast<int32_t>(t), at, 1, kEvictDim);
      }
    }
    for (size_t thread = 0; thread < 2; ++thread) {
      record.observe(0, q.data(), 4 * kEvictDim, 0, 130, thread, 2);
      record.observe(0, q.data() + 130 * 4 * kEvictDim, 4 * kEvictDim, 130, kEvictTokens - 130, thread, 2);
    }
  }
  double rotated_dot(size_t head, size_t t, size_t key) const {
    std::vector<float> q(queries[head].begin() + static_cast<ptrdiff_t>(t * kEvictDim),
                         queries[head].begin() + static_cast<ptrdiff_t>((t + 1) * kEvictDim));
    rope.rotate(static_cast<int32_t>(t), q.data(), 1, kEvictDim);
    double sum = 0;
    for (size_t d = 0; d < kEvictDim; ++d) sum += double{q[d]} * double{keys[head / 2][key * kEvictDim + d]};
    return sum * 0.25;
  }
};

std::vector<double> soft_max_of(std::vector<double> x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - most);
  for (double& v : x) v /= sum;
  return x;
}

void expect_near_all(const std::vector<float>& got, const std::vector<double>& wanted, double relative) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), wanted[i], relative * std::max(1e-3, std::abs(wanted[i]))) << i;
  }
}

TEST(KeyScores, ObservedIsSnapKv) {
  const EvictScene scene(3);
  for (size_t head = 0; head < 2; ++head) {
    std::vector<double> sums(kEvictTokens, 0.0);
    for (size_t g = 0; g < 2; ++g) {
      for (size_t t = kEvictTokens - 32; t < kEvictTokens; ++t) {
        std::vector<double> row(t + 1);
        for (size_t j = 0; j <= t; ++j) row[j] = scene.rotated_dot(head * 2 + g, t, j);
        const auto p = soft_max_of(row);
        for (size_t j = 0; j <= t; ++j) sums[j] += p[j] / 2;
      }
    }
    std::vector<double> wanted(kEvictTokens);
    for (size_t j = 0; j < kEvictTokens; ++j) {
      for (size_t i = j < 2 ? 0 : j - 2; i <= std::min(kEvictTokens - 1, j + 2); ++i)
        wanted[j] += sums[i] / 5;
    }
    std::vector<float> scores;
    ASSERT_TRUE(score_keys({}, scene.geometry, scene.kv, &scene.record, 0, head, scores).ok());
    expect_near_all(scores, wanted, 1e-4);
  }
}

TEST(KeyScores, RepeatedIsTheMostThatAnyQueryPaysAPartOfTheText) {
  const EvictScene scene(5);
  constexpr size_t kQueries = 20, kFirst = 10, kPart = 33;
  const size_t own = kEvictTokens - 27;  // what was read behind the text
  for (size_t head = 0; head < 2; ++head) {
    std::vector<double> wanted(kPart, 0.0);
    for (size_t g = 0; g < 2; ++g) {
      for (size_t t = kEvictTokens - kQueries; t < kEvictTokens; ++t) {
        std::vector<double> row;
        for (size_t j = kFirst; j < kFirst + kPart; ++j) row.push_back(scene.rotated_dot(head * 2 + g, t, j));
        for (size_t j = own; j <= t; ++j) row.push_back(scene.rotated_dot(head * 2 + g, t, j));
        const auto p = soft_max_of(row);
        for (size_t j = 0; j < kPart; ++j) wanted[j] = std::max(wanted[j], p[j]);
      }
    }
    std::vector<float> scores(kPart, 0.0f);
    ASSERT_TRUE(
        raise_repeated(scene.geometry, scene.kv, scene.record, 0, head, kQueries, kFirst, own, scores).ok());
    expect_near_all(scores, wanted, 1e-4);
    EXPECT_EQ(raise_repeated(scene.geometry, scene.kv, scene.record, 0, head, 0, kFirst, own, scores).code(),
              Code::kFailedPrecondition);
  }
}

TEST(KeyScores, ExpectedIsTheMeanOfAGaussianQuery) {
  const EvictScene scene(4);
  const size_t head = 1;
  std::vector<double> sums(kEvictTokens, 0.0);
  for (size_t g = 0; g < 2; ++g) {
    std::vector<double> mean(kEvictDim, 0.0);
    std::vector<double> cov(kEvictDim * kEvictDim, 0.0);
    size_t n = 0;
    const auto& q = scene.queries[head * 2 + g];
    for (size_t t = 0; t < kEvictTokens; t += QueryRecord::kMomentStride, ++n) {
      for (size_t i = 0; i < kEvictDim; ++i) mean[i] += double{q[t * kEvictDim + i]};
      for (size_t i = 0; i < kEvictDim * kEvictDim; ++i)
        cov[i] += double{q[t * kEvictDim + i / kEvictDim]} * double{q[t * kEvictDim + i % kEvictDim]};
    }
    for (double& m : mean) m /= static_cast<double>(n);
    for (size_t i = 0; i < kEvictDim * kEvictDim; ++i)
      cov[i] = cov[i] / static_cast<double>(n) - mean[i / kEvictDim] * mean[i % kEvictDim];
    // The mean rotation over the next 512 positions as a matrix, from the rotated unit vectors.
    std::vector<double> turn(kEvictDim * kEvictDim, 0.0);
    for (int32_t p = 0; p < 512; ++p) {
      for (size_t j = 0; j < kEvictDim; ++j) {
        std::vector<float> unit(kEvictDim, 0.0f);
        unit[j] = 1.0f;
        scene.rope.rotate(static_cast<int32_t>(kEvictTokens) + p, unit.data(), 1, kEvictDim);
        for (size_t i = 0; i < kEvictDim; ++i) turn[i * kEvictDim + j] += double{unit[i]} / 512;
      }
    }
    std::vector<double> logits;
    for (size_t j = 4; j < kEvictTokens; ++j) {
      std::vector<double> back(kEvictDim, 0.0);  // turn' k
      for (size_t a = 0; a < kEvictDim; ++a) {
        for (size_t b = 0; b < kEvictDim; ++b)
          back[a] += turn[b * kEvictDim + a] * double{scene.keys[head][j * kEvictDim + b]} * 0.25;
      }
      double logit = 0;
      for (size_t a = 0; a < kEvictDim; ++a) {
        logit += back[a] * mean[a];
        for (size_t b = 0; b < kEvictDim; ++b) logit += 0.5 * back[a] * cov[a * kEvictDim + b] * back[b];
      }
      logits.push_back(logit);
    }
    const auto p = soft_max_of(logits);
    for (size_t j = 4; j < kEvictTokens; ++j) sums[j] += p[j - 4] / 2;
  }
  std::vector<double> wanted(kEvictTokens);
  for (size_t j = 0; j < kEvictTokens; ++j) {
    double norm = 0;
    for (size_t d = 0; d < kEvictDim; ++d) norm += std::pow(double{scene.values[head][j * kEvictDim + d]}, 2);
    wanted[j] = (sums[j] + 0.01) * std::sqrt(norm);
  }
  KeyScoring scoring;
  scoring.scorer = KeyScorer::kExpected;
  std::vector<float> scores;
  ASSERT_TRUE(score_keys(scoring, scene.geometry, scene.kv, &scene.record, 0, head, scores).ok());
  expect_near_all(scores, wanted, 1e-3);
}

TEST(KeyScores, KeyDiffIsTheCosineToTheMeanDirection) {
  const EvictScene scene(5);
  std::vector<double> mean(kEvictDim, 0.0);
  std::vector<double> norms(kEvictTokens);
  const auto& keys = scene.keys[0];
  for (size_t j = 0; j < kEvictTokens; ++j) {
    for (size_t d = 0; d < kEvictDim; ++d) norms[j] += std::pow(double{keys[j * kEvictDim + d]}, 2);
    norms[j] = std::sqrt(norms[j]);
    for (size_t d = 0; d < kEvictDim; ++d) mean[d] += double{keys[j * kEvictDim + d]} / norms[j];
  }
  double length = 0;
  for (const double m : mean) length += m * m;
  std::vector<double> wanted(kEvictTokens, 0.0);
  for (size_t j = 0; j < kEvictTokens; ++j) {
    for (size_t d = 0; d < kEvictDim; ++d)
      wanted[j] -= double{keys[j * kEvictDim + d]} / norms[j] * mean[d] / std::sqrt(length);
  }
  KeyScoring scoring;
  scoring.scorer = KeyScorer::kKeyDiff;
  std::vector<float> scores;
  ASSERT_TRUE(score_keys(scoring, scene.geometry, scene.kv, nullptr, 0, 0, scores).ok());
  expect_near_all(scores, wanted, 1e-4);
}

TEST(KeyScores, SaysWhatIsMissing) {
  EvictScene scene(6);
  std::vector<float> scores;
  EXPECT_EQ(score_keys({}, scene.geometry, scene.kv, nullptr, 0, 0, scores).code(),
            Code::kFailedPrecondition);
  const QueryRecord bare(scene.geometry, 32, false);
  KeyScoring expected;
  expected.scorer = KeyScorer::kExpected;
  EXPECT_EQ(score_keys(expected, scene.geometry, scene.kv, &bare, 0, 0, scores).code(),
            Code::kFailedPrecondition);
  // Queries of an earlier state of the text.
  ASSERT_TRUE(scene.kv.truncate(100).ok());
  EXPECT_EQ(score_keys({}, scene.geometry, scene.kv, &scene.record, 0, 0, scores).code(),
            Code::kFailedPrecondition);
}

TEST(QueryRecord, AfterAStepBackOlderQueriesAreNotAtHand) {
  const EvictScene scene(8);
  QueryRecord record(scene.geometry, 32, false);
  const std::vector<float> q(50 * 4 * kEvictDim, 1.0f);
  record.observe(0, q.data(), 4 * kEvictDim, 0, 50, 0, 1);
  EXPECT_EQ(record.recent(0), 32U);
  record.observe(0, q.data(), 4 * kEvictDim, 20, 5, 0, 1);
  EXPECT_EQ(record.recent(0), 5U);
  EXPECT_EQ(record.end(0), 25);
}

TEST(Budgets, MeanIsTheBudget) {
  for (const auto policy : {KvPolicy::kSnapKv, KvPolicy::kPyramidKv}) {
    for (const double share : {0.1, 0.25, 0.5, 0.75, 0.9, 1.0}) {
      for (const size_t layers : {1, 2, 3, 30}) {
        for (const size_t length : {100, 1000, 4096}) {
          EvictionOptions options;
          options.policy = policy;
          options.share = share;
          const auto budgets = layer_budgets(options, layers, length);
          ASSERT_EQ(budgets.size(), layers);
          const double mean = std::max(std::round(share * static_cast<double>(length)), 36.0);
          const double sum = std::accumulate(budgets.begin(), budgets.end(), 0.0);
          ASSERT_NEAR(sum, mean * static_cast<double>(layers), 1.0)
              << share << " " << layers << " " << length;
          ASSERT_TRUE(std::is_sorted(budgets.rbegin(), budgets.rend()) || policy == KvPolicy::kSnapKv);
          for (const size_t budget : budgets) ASSERT_LE(budget, length);
        }
      }
    }
  }
}

TEST(Budgets, AreChecked) {
  EvictionOptions options;
  options.policy = KvPolicy::kSnapKv;
  for (const double share : {0.0, -1.0, 1.5, std::nan("")}) {
    options.share = share;
    EXPECT_EQ(check_eviction(options).code(), Code::kInvalidArgument) << share;
  }
  options.tokens = 35;
  EXPECT_EQ(check_eviction(options).code(), Code::kInvalidArgument);
  options.tokens = 36;
  EXPECT_TRUE(check_eviction(options).ok());
}

TEST(ChooseKeys, EachHeadKeepsItsBest) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<float>> scores(1 + rng() % 4);
    for (auto& head : scores) {
      head.resize(20 + rng() % 200);
      for (float& score : head) score = static_cast<float>(rng() % 10);  // many ties
    }
    const size_t sinks = rng() % 6;
    const size_t window = rng() % 12;
    const size_t budget = sinks + window + rng() % 60;
    const auto kept = choose_keys(scores, budget, sinks, window, false, 0.0);
    for (size_t h = 0; h < scores.size(); ++h) {
      const size_t keys = scores[h].size();
      ASSERT_EQ(kept[h].size(), std::min(budget, keys));
      ASSERT_TRUE(std::is_sorted(kept[h].begin(), kept[h].end()));
      std::vector<bool> is_kept(keys);
      for (const uint32_t place : kept[h]) is_kept[place] = true;
      for (size_t j = 0; j < keys; ++j) {
        ASSERT_TRUE(is_kept[j] || (j >= sinks && j + window < keys));
      }
      // No key left out beats one that was chosen; of equals the earlier is chosen.
      for (size_t a = sinks; a + window < keys; ++a) {
        for (size_t b = sinks; b + window < keys; ++b) {
          if (!is_kept[a] || is_kept[b]) continue;
          ASSERT_TRUE(scores[h][a] > scores[h][b] || (scores[h][a] == scores[h][b] && a < b));
        }
      }
    }
  }
}

TEST(ChooseKeys, HeadsCompeteAboveTheirFloor) {
  std::vector<std::vector<float>> scores(2, std::vector<float>(100));
  for (size_t j = 0; j < 100; ++j) {
    scores[0][j] = 1000.0f + static_cast<float>(j);  // all beat those of the second head
    scores[1][j] = static_cast<float>(j);
  }
  const auto kept = choose_keys(scores, 50, 0, 10, true, 0.2);
  EXPECT_EQ(kept[0].size() + kept[1].size(), 100U);
  EXPECT_EQ(kept[1].size(), 10U + 8U);  // the window and a fifth of 40
  EXPECT_EQ(kept[0].size(), 10U + 72U);
  EXPECT_EQ(kept[1].front(), 82U);
}

TEST(Evict, FullBudgetChangesNothing) {
  ThreadPool pool(2);
  for (const auto policy :
       {KvPolicy::kFull, KvPolicy::kWindow, KvPolicy::kRandom, KvPolicy::kSnapKv, KvPolicy::kPyramidKv,
        KvPolicy::kAdaKv, KvPolicy::kExpected, KvPolicy::kKeyDiff}) {
    EvictScene scene(9);
    EvictionOptions options;
    options.policy = policy;
    options.share = 1.0;
    const auto report = evict(options, scene.geometry, &scene.record, scene.kv, pool);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->keys_before, 2 * kEvictTokens);
    EXPECT_EQ(report->keys_after, 2 * kEvictTokens);
    EXPECT_FALSE(scene.kv.pruned()) << kv_policy_name(policy);
  }
}

TEST(Evict, HoldsTheBudgetAndLeavesOtherLayersAlone) {
  ThreadPool pool(2);
  for (const auto policy : {KvPolicy::kWindow, KvPolicy::kRandom, KvPolicy::kSnapKv, KvPolicy::kPyramidKv,
                            KvPolicy::kAdaKv, KvPolicy::kExpected, KvPolicy::kKeyDiff}) {
    EvictScene scene(10);
    EvictionOptions options;
    options.policy = policy;
    options.tokens = 60;
    const auto report = evict(options, scene.geometry, &scene.record, scene.kv, pool);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->keys_after, 120U) << kv_policy_name(policy);
    EXPECT_EQ(scene.kv.held_keys(1, 0), kEvictTokens);
    EXPECT_EQ(scene.kv.held_keys(1, 1), kEvictTokens);
  }
}

TEST(Evict, AWindowTrimsWholeBlocksAsTheTextGrows) {
  EvictScene scene(11);
  EvictionOptions options;
  options.policy = KvPolicy::kWindow;
  options.tokens = 64;
  ASSERT_TRUE(trim_window(options, scene.geometry, 64, scene.kv).ok());
  EXPECT_EQ(scene.kv.held_keys(0, 0), 64U + (kEvictTokens - 64) % 32);
  EXPECT_EQ(scene.kv.held_keys(1, 0), kEvictTokens);
  float row[kEvictDim];
  const KvStreamRef stream = scene.kv.stream(0, 1);
  kv_read(KvType::kF32, KvPart::kKey, stream.blocks[0].k, 0, row, kEvictDim);
  EXPECT_EQ(row[0], scene.keys[1][0]);  // the sinks
  const size_t last = stream.keys - 1;
  kv_read(KvType::kF32, KvPart::kKey, stream.blocks[last / 32].k, last % 32, row, kEvictDim);
  EXPECT_EQ(row[0], scene.keys[1][(kEvictTokens - 1) * kEvictDim]);
  ASSERT_TRUE(trim_window(options, scene.geometry, 64, scene.kv).ok());  // nothing more to do
  EXPECT_EQ(scene.kv.held_keys(0, 0), 64U + (kEvictTokens - 64) % 32);
}

TEST(KvPolicyNames, GoThereAndBack) {
  for (int i = 0; i < 9; ++i) {
    const auto policy = static_cast<KvPolicy>(i);
    EXPECT_EQ(kv_policy_from_name(kv_policy_name(policy)), policy);
  }
  EXPECT_FALSE(kv_policy_from_name("best").has_value());
}

}  // namespace
}  // namespace isthmus
