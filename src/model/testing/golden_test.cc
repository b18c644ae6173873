#include "model/testing/golden.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace isthmus::testing {
namespace {

Result<std::string> read_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return not_found(path);
  std::string out;
  char buffer[1 << 16];
  int n = 0;
  while ((n = gzread(file, buffer, sizeof(buffer))) > 0) out.append(buffer, static_cast<size_t>(n));
  gzclose(file);
  if (n < 0) return corrupt(path);
  return out;
}

double log_sum(const float* logits, size_t n) {
  double most = -INFINITY;
  for (size_t i = 0; i < n; ++i) most = std::max(most, static_cast<double>(logits[i]));
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i]) - most);
  return most + std::log(sum);
}

}  // namespace

Result<Golden> read_golden(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_gzip(path));
  const auto json = nlohmann::json::parse(text);
  Golden out;
  out.model = json.at("model");
  if (json.contains("peer")) out.peer_mean_kl = json.at("peer").at("mean_kl");
  for (const auto& item : json.at("sequences")) {
    GoldenSequence s;
    s.tokens = item.at("tokens").get<std::vector<int32_t>>();
    s.positions = item.at("positions").get<std::vector<uint32_t>>();
    s.logits = item.at("logits").get<std::vector<std::vector<float>>>();
    s.context = item.value("context", size_t{0});
    out.sequences.push_back(std::move(s));
  }
  return out;
}

double kl_divergence(const std::vector<float>& p_logits, const float* q_logits) {
  const double p_sum = log_sum(p_logits.data(), p_logits.size());
  const double q_sum = log_sum(q_logits, p_logits.size());
  double kl = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double p = static_cast<double>(p_logits[i]) - p_sum;
    kl += std::exp(p) * (p - (static_cast<double>(q_logits[i]) - q_sum));
  }
  return kl;
}

TEST(KlDivergence, IsZeroForEqualAndKnownForTwoOutcomes) {
  const std::vector<float> p = {0.0F, std::log(3.0F)};
  EXPECT_NEAR(kl_divergence(p, p.data()), 0, 1e-12);
  const float q[] = {0.0F, 0.0F};
  EXPECT_NEAR(kl_divergence(p, q), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
}

}  // namespace isthmus::testing
