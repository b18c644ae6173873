// Finds, for a model and a memory target, which bits each layer's keys and values bear best.
//
// Each layer's keys and values are coded alone with each number of bits, and the distance of the model's
// distributions from those over KV as written is measured on a text; kv/bit_plan.h makes the plan of it. The
// plan is then measured whole, beside the uniform codecs that take no more memory: the best of all wins, so
// the answer is never worse than those.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "engine/evaluate.h"
#include "format/logits_distance.h"
#include "kv/bit_plan.h"

namespace isthmus {

struct TuneKvOptions {
  double mean_bits = 4;  // what a value may take, scale and minimum included
  size_t window = 640;   // tokens of each window
  size_t rows = 128;     // newest tokens of a window whose distributions are compared
  size_t windows = 2;
  size_t residual = 128;
  KeyForm keys = KeyForm::kRotated;
  std::function<void(size_t done, size_t all)> progress = {};
  StopPolicy stop = {};
};

/// A codec and how far it is from KV as written.
struct MeasuredCodec {
  KvCodec codec;
  double held_bits = 16;
  DistanceSummary distance;
};

struct TunedKvBits {
  MeasuredCodec chosen;
  std::vector<MeasuredCodec> others;  // measured beside it, none of them better
  std::vector<BitLosses> losses;      // mean KL: keys of layer 0, values of layer 0, keys of layer 1 …
};

/// `text` has windows * window tokens or more. The model was loaded for a Scorer (kScorerStep), with exact KV
/// and a context of at least a window. kInvalidArgument, and the errors of scoring.
Result<TunedKvBits> tune_kv_bits(std::shared_ptr<LanguageModel> model, std::span<const TokenId> text,
                                 const TuneKvOptions& options);

}  // namespace isthmus
