#include "calibrate/tune_kv_bits.h"

#include <algorithm>
#include <cmath>

#include "format/logits_file.h"

namespace isthmus {
namespace {

class KvTuner {
 public:
  KvTuner(std::unique_ptr<Scorer> scorer, std::vector<std::vector<TokenId>> windows,
          const TuneKvOptions& options)
      : scorer_(std::move(scorer)), windows_(std::move(windows)), options_(options) {}

  size_t layers() const { return scorer_->model().config().layers; }

  /// Keeps the rows over KV as written.
  Status make_truth() {
    KvCodec none;
    none.keys = options_.keys;
    ISTHMUS_RETURN_IF_ERROR(scorer_->set_codec(none));
    return for_each_row([&](std::span<const float> row, TokenId) {
      truth_.insert(truth_.end(), row.begin(), row.end());
      return ok_status();
    });
  }

  Result<MeasuredCodec> measure(KvCodec codec) {
    codec.residual = options_.residual;
    codec.keys = options_.keys;
    ISTHMUS_RETURN_IF_ERROR(scorer_->set_codec(codec));
    DistanceTally tally;
    size_t at = 0;
    ISTHMUS_RETURN_IF_ERROR(for_each_row([&](std::span<const float> row, TokenId next) {
      tally.add(std::span(truth_).subspan(at, row.size()), row, next);
      at += row.size();
      return ok_status();
    }));
    step();
    return MeasuredCodec{codec, mean_held_bits(codec, layers()), tally.summary()};
  }

  /// Keys or values of each layer alone.
  Result<std::vector<BitLosses>> measure_parts() {
    all_ = 2 * layers() * (kPlanBits.size() - 1) + kUniform.size() + 1;
    std::vector<BitLosses> out(2 * layers());
    for (size_t part = 0; part < out.size(); ++part) {
      for (size_t i = 0; i + 1 < kPlanBits.size(); ++i) {
        KvCodec codec;
        codec.layers.assign(layers(), KvBits{});
        (part % 2 == 0 ? codec.layers[part / 2].k : codec.layers[part / 2].v) = kPlanBits[i];
        ISTHMUS_ASSIGN_OR_RETURN(const MeasuredCodec measured, measure(codec));
        out[part][i] = measured.distance.mean_kl;
      }
    }
    return out;
  }

  static constexpr std::array<std::string_view, 7> kUniform = {"8", "k8v4", "4", "k4v2", "2", "k2v1", "1"};

 private:
  template <class F>
  Status for_each_row(F f) {
    const size_t first = options_.window - options_.rows - 1;
    for (const auto& window : windows_) {
      ISTHMUS_RETURN_IF_ERROR(scorer_->score(window, first, options_.window - 1, ScoreMode::kWindow,
                                             options_.stop, [&](size_t position, std::span<float> logits) {
                                               row_.resize(logits.size());
                                               log_softmax(logits, row_);
                                               return f(row_, window[position + 1]);
                                             }));
    }
    return ok_status();
  }
  void step() {
    ++done_;
    if (options_.progress) options_.progress(std::min(done_, all_), all_);
  }

  std::unique_ptr<Scorer> scorer_;
  std::vector<std::vector<TokenId>> windows_;
  const TuneKvOptions& options_;
  std::vector<float> row_;
  std::vector<float> truth_;  // [windows * rows][vocab]
  size_t done_ = 0;
  size_t all_ = 1;
};

Status check_tuning(const LanguageModel& model, std::span<const TokenId> text, const TuneKvOptions& options) {
  if (options.windows == 0 || options.rows == 0 || options.rows + options.residual + 1 > options.window) {
    return invalid_argument("windows of " + std::to_string(options.window) +
                            " tokens are too short to score " + std::to_string(options.rows) +
                            " of them behind coded ones");
  }
  if (options.window > model.context()) {
    return invalid_argument("windows of " + std::to_string(options.window) + " tokens; the context is " +
                            std::to_string(model.context()));
  }
  if (text.size() < options.windows * options.window) {
    return invalid_argument("the text has " + std::to_string(text.size()) + " tokens; " +
                            std::to_string(options.windows * options.window) + " are needed");
  }
  if (!(options.mean_bits >= held_bits(1) && options.mean_bits <= 16)) {
    return invalid_argument("a target of " + std::to_string(options.mean_bits) +
                            " bits a value; it is between 2 and 16");
  }
  return ok_status();
}

}  // namespace

Result<TunedKvBits> tune_kv_bits(std::shared_ptr<LanguageModel> model, std::span<const TokenId> text,
                                 const TuneKvOptions& options) {
  ISTHMUS_RETURN_IF_ERROR(check_tuning(*model, text, options));
  auto windows = cut_windows(model->tokenizer(), text, options.window, options.window, options.windows);
  ISTHMUS_ASSIGN_OR_RETURN(auto scorer, Scorer::create(std::move(model)));
  KvTuner tuner(std::move(scorer), std::move(windows), options);
  ISTHMUS_RETURN_IF_ERROR(tuner.make_truth());
  TunedKvBits out;
  ISTHMUS_ASSIGN_OR_RETURN(out.losses, tuner.measure_parts());
  KvCodec plan;
  ISTHMUS_ASSIGN_OR_RETURN(plan.layers, plan_kv_bits(out.losses, options.mean_bits));
  ISTHMUS_ASSIGN_OR_RETURN(out.chosen, tuner.measure(plan));
  for (const std::string_view name : KvTuner::kUniform) {
    ISTHMUS_ASSIGN_OR_RETURN(const KvCodec codec, parse_kv_bits(name));
    if (mean_held_bits(codec, tuner.layers()) > options.mean_bits + 1e-9) continue;
    ISTHMUS_ASSIGN_OR_RETURN(MeasuredCodec measured, tuner.measure(codec));
    if (measured.distance.mean_kl < out.chosen.distance.mean_kl) std::swap(measured, out.chosen);
    out.others.push_back(std::move(measured));
  }
  return out;
}

}  // namespace isthmus
