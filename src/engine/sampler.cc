#include "engine/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>

#include "kernels/float_kernels.h"

namespace isthmus {
namespace {

constexpr size_t kFirstGuess = 64;  // candidates fetched before more are needed for a top-p mass

template <typename Number>
Status out_of_range(const char* field, Number value, const char* range) {
  return invalid_argument(fmt::format("{} is {}; it must be {}", field, value, range));
}

/// Probabilities of a candidate list, normalised over the list.
std::vector<double> probabilities(const std::vector<TokenLogit>& list) {
  std::vector<double> p(list.size());
  double sum = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    p[i] = std::exp(static_cast<double>(list[i].logit) - static_cast<double>(list.front().logit));
    sum += p[i];
  }
  for (double& value : p) value /= sum;
  return p;
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, size_t k, double log_sum) {
  std::vector<TokenLogit> best;
  top_k_logits(logits, k, &best);
  std::vector<TokenLogprob> out;
  out.reserve(best.size());
  for (const auto& c : best) {
    out.push_back({static_cast<int32_t>(c.id), static_cast<float>(static_cast<double>(c.logit) - log_sum)});
  }
  return out;
}

}  // namespace

Status check_sampler_params(const SamplerParams& p, size_t vocab) {
  if (!(p.temperature >= 0 && p.temperature <= 100))
    return out_of_range("temperature", p.temperature, "in [0, 100]");
  if (!(p.top_p > 0 && p.top_p <= 1)) return out_of_range("top_p", p.top_p, "in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return out_of_range("min_p", p.min_p, "in [0, 1]");
  if (!(p.typical > 0 && p.typical <= 1)) return out_of_range("typical", p.typical, "in (0, 1]");
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= 10)) {
    return out_of_range("repetition_penalty", p.repetition_penalty, "in (0, 10]");
  }
  if (!(std::fabs(p.presence_penalty) <= 2))
    return out_of_range("presence_penalty", p.presence_penalty, "in [-2, 2]");
  if (!(std::fabs(p.frequency_penalty) <= 2)) {
    return out_of_range("frequency_penalty", p.frequency_penalty, "in [-2, 2]");
  }
  if (p.logprobs > vocab) return out_of_range("logprobs", p.logprobs, "at most the vocabulary");
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || static_cast<size_t>(token) >= vocab) {
      return out_of_range("logit_bias token", token, "in the vocabulary");
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      return invalid_argument("logit_bias of token " + std::to_string(token) + " is " +
                              (std::isnan(bias) ? "not a number" : "infinite; only -inf, a ban, is of use"));
    }
  }
  return ok_status();
}

bool Sampler::changes_logits() const {
  return !params_.logit_bias.empty() || params_.repetition_penalty != 1.0F ||
         params_.presence_penalty != 0.0F || params_.frequency_penalty != 0.0F;
}

void Sampler::apply_bias_and_penalties(std::span<const int32_t> history) {
  for (const auto& [token, bias] : params_.logit_bias) work_[static_cast<size_t>(token)] += bias;
  const size_t window = params_.penalty_window == 0 ? history.size() : params_.penalty_window;
  if (history.size() > window) history = history.last(window);
  std::unordered_map<int32_t, uint32_t> counts;
  for (const int32_t token : history) ++counts[token];
  for (const auto& [token, count] : counts) {
    if (token < 0 || static_cast<size_t>(token) >= work_.size()) continue;
    float& logit = work_[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
  }
}

void Sampler::candidates_by_mass(std::span<const float> logits) {
  // Enough of the most likely tokens to reach top_p of the whole vocabulary's mass: fetched in growing
  // portions, since sorting 150,000 logits costs more than a decode step of a small model.
  const float most = float_kernels().max(logits.data(), logits.size());
  const double total = float_kernels().sum_exp(logits.data(), logits.size(), most);
  for (size_t n = kFirstGuess;; n *= 8) {
    top_k_logits(logits, n, &list_);
    double mass = 0;
    size_t keep = 0;
    while (keep < list_.size() && mass < static_cast<double>(params_.top_p) * total) {
      mass += std::exp(static_cast<double>(list_[keep].logit) - static_cast<double>(most));
      ++keep;
    }
    if (keep < list_.size() || list_.size() == logits.size()) {
      list_.resize(std::max<size_t>(1, keep));
      return;
    }
  }
}

void Sampler::choose_candidates(std::span<const float> logits) {
  if (params_.top_k > 0) {
    top_k_logits(logits, params_.top_k, &list_);
    filter_typical();
    filter_top_p();
  } else if (params_.typical >= 1 && params_.top_p < 1) {
    candidates_by_mass(logits);
  } else {
    top_k_logits(logits, logits.size(), &list_);
    filter_typical();
    filter_top_p();
  }
  filter_min_p();
}

void Sampler::filter_typical() {
  if (params_.typical >= 1) return;
  const std::vector<double> p = probabilities(list_);
  double entropy = 0;
  for (const double value : p) entropy -= value > 0 ? value * std::log(value) : 0;
  std::vector<size_t> order(list_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto distance = [&](size_t i) {
    return p[i] > 0 ? std::fabs(-std::log(p[i]) - entropy) : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
  double mass = 0;
  size_t keep = 0;
  while (keep < order.size() && mass < static_cast<double>(params_.typical)) mass += p[order[keep++]];
  order.resize(std::max<size_t>(1, keep));
  std::sort(order.begin(), order.end());  // back to most likely first
  std::vector<TokenLogit> kept;
  kept.reserve(order.size());
  for (const size_t i : order) kept.push_back(list_[i]);
  list_ = std::move(kept);
}

void Sampler::filter_top_p() {
  if (params_.top_p >= 1) return;
  const std::vector<double> p = probabilities(list_);
  double mass = 0;
  size_t keep = 0;
  while (keep < p.size() && mass < static_cast<double>(params_.top_p)) mass += p[keep++];
  list_.resize(std::max<size_t>(1, keep));
}

void Sampler::filter_min_p() {
  if (params_.min_p <= 0) return;
  const float floor = list_.front().logit + std::log(params_.min_p);
  while (list_.size() > 1 && list_.back().logit < floor) list_.pop_back();
}

Sampled Sampler::draw() {
  for (auto& c : list_) c.logit /= params_.temperature;
  const std::vector<double> p = probabilities(list_);
  const double u = rng_.uniform();
  double mass = 0;
  size_t chosen = p.size() - 1;
  for (size_t i = 0; i < p.size(); ++i) {
    mass += p[i];
    if (u < mass) {
      chosen = i;
      break;
    }
  }
  // Rounding can leave the last candidates with no mass at all.
  while (chosen > 0 && !(p[chosen] > 0)) --chosen;
  Sampled out;
  out.token = static_cast<int32_t>(list_[chosen].id);
  out.final_logprob = static_cast<float>(std::log(p[chosen]));
  for (size_t i = 0; i < std::min<size_t>(params_.logprobs, p.size()); ++i) {
    out.top_final.push_back({static_cast<int32_t>(list_[i].id), static_cast<float>(std::log(p[i]))});
  }
  return out;
}

size_t Sampler::wanted_logits() const {
  if (changes_logits() || params_.logprobs > 0) return 0;
  if (params_.temperature == 0) return 1;
  return params_.top_k;  // the other filters look at what it leaves
}

Result<Sampled> Sampler::sample(std::span<const float> logits, std::span<const int32_t> history,
                                bool complete) {
  std::span<const float> used = logits;
  if (changes_logits()) {
    work_.assign(logits.begin(), logits.end());
    apply_bias_and_penalties(history);
    used = work_;
  }
  const size_t best = float_kernels().argmax(used.data(), used.size());
  if (!std::isfinite(used[best])) {
    const size_t unbiased = float_kernels().argmax(logits.data(), logits.size());
    if (std::isfinite(logits[unbiased])) return invalid_argument("logit_bias leaves no token to choose");
    return corrupt("no token has a finite logit: the model's weights are damaged");
  }
  Sampled out;
  if (params_.temperature == 0) {
    out.token = static_cast<int32_t>(best);
    if (params_.logprobs > 0) out.top_final.push_back({out.token, 0.0F});
  } else {
    choose_candidates(used);
    out = draw();
  }
  if (!complete) {
    out.logprob = std::numeric_limits<float>::quiet_NaN();
    return out;
  }
  const double log_sum = log_sum_exp(logits);
  out.logprob = static_cast<float>(static_cast<double>(logits[static_cast<size_t>(out.token)]) - log_sum);
  if (params_.logprobs > 0) out.top = top_logprobs(logits, params_.logprobs, log_sum);
  return out;
}

}  // namespace isthmus
