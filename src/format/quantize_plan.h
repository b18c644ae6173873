// Deciding which type each tensor of a model gets: a pure function of the model's tensors and the wish.
//
// A target is one type for all matrices, or a mix: a base type, with more bits where they help most (output
// head, value and down projections of some layers). What cannot have its type gets a named alternative, and
// every tensor's decision carries its reason, so that nothing about the result is hidden. Pure, any thread.
// Errors: kNotFound for an unknown target (the message lists those there are), kFailedPrecondition when a
// source is quantised already and that was not allowed, kUnsupported for a source type that cannot be read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/gguf.h"

namespace isthmus {

/// One named target, such as "Q4_K_M".
struct QuantizeTarget {
  std::string_view name;
  DType base;                // of all matrices to which no rule applies
  uint32_t file_type;        // value of general.file_type, by the convention of the format
  std::string_view summary;  // one line for a user
};

/// All targets, fewest bits first.
std::span<const QuantizeTarget> quantize_targets();
/// By name, in any case; nullptr when there is none.
const QuantizeTarget* find_quantize_target(std::string_view name);

/// Why a tensor gets its type.
enum class QuantizeReason {
  kTarget,     // the target's base type
  kMix,        // the mix gives this tensor more bits
  kHead,       // output head, or the embedding that serves as one
  kAsked,      // an override of the caller
  kFallback,   // rows do not divide into blocks of the wanted type: its alternative
  kKept,       // vectors, norms, routers and the like stay as they are
  kUnchanged,  // it has the wanted type already
};

/// "target", "mix", "head", "asked", "fallback", "kept", "unchanged".
std::string_view quantize_reason_name(QuantizeReason reason);

struct TensorDecision {
  std::string name;
  DType from{};
  DType to{};
  DType wanted{};  // differs from `to` only for kFallback
  QuantizeReason reason{};
  uint64_t bytes_from = 0;
  uint64_t bytes_to = 0;
};

struct QuantizeWish {
  std::string target;              // a name of quantize_targets()
  std::optional<DType> head;       // overrides the output head (and an embedding that serves as one)
  std::optional<DType> embedding;  // overrides the token embedding
  bool allow_requantize = false;   // convert quantised sources, whose losses then add up
};

/// One decision per tensor of `model`, in its order.
Result<std::vector<TensorDecision>> plan_quantize(const GgufFile& model, const QuantizeWish& wish);

}  // namespace isthmus
