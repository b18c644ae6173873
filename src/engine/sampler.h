// From logits to a token.
//
// The order of the steps is fixed and part of the contract:
//   1. logit bias (added), 2. penalties over the last `penalty_window` tokens: repetition (divides positive
//   logits, multiplies negative ones; Keskar et al. 2019), presence and frequency (subtracted; OpenAI's
//   definition), 3. top-k, 4. typical (Meister et al. 2022), 5. top-p (Holtzman et al. 2019), 6. min-p
//   (Nguyen et al. 2024), 7. temperature, 8. the draw.
// Each filter sees the distribution that the one before it left, renormalised. temperature == 0 is greedy:
// after step 2 the largest logit wins, the lowest id on ties. A filter at its null value (top_k 0, typical 1,
// top_p 1, min_p 0) changes nothing. The draw depends on the seed and the number of draws before it only, so
// a seed gives the same text at any thread count. A Sampler is a value: copying it copies its state. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "ops/sampling_math.h"

namespace isthmus {

struct SamplerParams {
  float temperature = 0.7F;         // >= 0; 0 = greedy
  uint32_t top_k = 40;              // 0 = off
  float top_p = 0.95F;              // (0, 1]; 1 = off
  float min_p = 0.05F;              // [0, 1]; 0 = off
  float typical = 1.0F;             // (0, 1]; 1 = off
  float repetition_penalty = 1.0F;  // > 0; 1 = off
  float presence_penalty = 0.0F;    // [-2, 2]
  float frequency_penalty = 0.0F;   // [-2, 2]
  uint32_t penalty_window = 64;     // tokens looked back at; 0 = all
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token, added to its logit (-inf bans it)
  uint32_t logprobs = 0;                              // report this many alternatives per token
};

/// kInvalidArgument naming the first field outside its range, or a biased token outside `vocab`.
Status check_sampler_params(const SamplerParams& params, size_t vocab);

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct Sampled {
  int32_t token = 0;
  /// Under the model's own distribution (before step 1); NaN when only the best logits were there.
  float logprob = 0;
  float final_logprob = 0;              // under the distribution that the draw used; 0 when greedy
  std::vector<TokenLogprob> top;        // the model's `logprobs` most likely tokens
  std::vector<TokenLogprob> top_final;  // the same after the filters
};

class Sampler {
 public:
  /// `params` must have passed check_sampler_params().
  explicit Sampler(SamplerParams params) : params_(std::move(params)), rng_(params_.seed) {}

  /// Chooses from logits[vocab]; `history` is the text so far (prompt and answer), the newest token last.
  /// kCorrupt when no token has a finite logit; kInvalidArgument when only the bias is to blame.
  /// `complete` is false when all but the wanted_logits() largest may be -infinity; wanted_logits() must not
  /// be 0 then.
  Result<Sampled> sample(std::span<const float> logits, std::span<const int32_t> history,
                         bool complete = true);
  /// How many of the largest logits sample() needs to give the same token, or 0 when it needs all of them.
  size_t wanted_logits() const;

  const SamplerParams& params() const { return params_; }

 private:
  bool changes_logits() const;
  void apply_bias_and_penalties(std::span<const int32_t> history);
  void choose_candidates(std::span<const float> logits);
  void candidates_by_mass(std::span<const float> logits);
  void filter_typical();
  void filter_top_p();
  void filter_min_p();
  Sampled draw();

  SamplerParams params_;
  Rng rng_;
  std::vector<float> work_;       // [vocab] adjusted logits
  std::vector<TokenLogit> list_;  // candidates, most likely first
};

}  // namespace isthmus
