#include "format/quantize_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "format/gguf_parse.h"
#include "tensor/quantize.h"

namespace isthmus {
namespace {

using enum DType;

// file_type values: the enumeration that general.file_type of existing files uses.
constexpr std::array kTargets = {
    QuantizeTarget{"Q2_K", kQ2_K, 10,
                   "2.6 bits, Q3_K and Q4_K where it hurts; for models that fit no other way"},
    QuantizeTarget{"Q3_K_S", kQ3_K, 11, "3.4 bits, uniform"},
    QuantizeTarget{"Q3_K_M", kQ3_K, 12,
                   "3.4 bits, more for values, outputs and half of the down projections"},
    QuantizeTarget{"Q4_0", kQ4_0, 2, "4.5 bits in plain blocks of 32; fastest to compute"},
    QuantizeTarget{"IQ4_XS", kIQ4_XS, 30, "4.25 bits with uneven levels"},
    QuantizeTarget{"IQ4_NL", kIQ4_NL, 25, "4.5 bits with uneven levels, any row length of 32"},
    QuantizeTarget{"MXFP4", kMXFP4, 38, "4.25 bits, FP4 values with power-of-two scales"},
    QuantizeTarget{"Q4_K_S", kQ4_K, 14, "4.5 bits, more for the first layers"},
    QuantizeTarget{"Q4_K_M", kQ4_K, 15,
                   "4.5 bits, 6.6 for half of the value and down projections; a good default"},
    QuantizeTarget{"Q4_1", kQ4_1, 3, "5 bits in plain blocks of 32 with a minimum"},
    QuantizeTarget{"Q5_0", kQ5_0, 8, "5.5 bits in plain blocks of 32"},
    QuantizeTarget{"Q5_K_S", kQ5_K, 16, "5.5 bits, uniform"},
    QuantizeTarget{"Q5_K_M", kQ5_K, 17, "5.5 bits, 6.6 for half of the value and down projections"},
    QuantizeTarget{"Q5_1", kQ5_1, 9, "6 bits in plain blocks of 32 with a minimum"},
    QuantizeTarget{"Q6_K", kQ6_K, 18, "6.6 bits, close to lossless"},
    QuantizeTarget{"Q8_0", kQ8_0, 7, "8.5 bits, practically lossless"},
    QuantizeTarget{"F16", kF16, 1, "half precision"},
    QuantizeTarget{"BF16", kBF16, 32, "bfloat16"},
    QuantizeTarget{"F32", kF32, 0, "single precision; expands a quantised model exactly"},
};

bool is_plain(DType type) { return type == kF32 || type == kF16 || type == kBF16; }

/// The layer number in "blk.12.attn_v.weight".
std::optional<uint64_t> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint64_t layer = 0;
  const char* begin = name.data() + kPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  if (error != std::errc() || end == begin) return std::nullopt;
  return layer;
}

/// One past the largest layer number; bounded by what a file can hold, so that a wild name cannot skew the
/// rules.
uint64_t count_layers(const GgufFile& model) {
  uint64_t count = 0;
  for (const auto& tensor : model.tensors()) {
    const auto layer = layer_of(tensor.name);
    if (layer && *layer < model.tensors().size()) count = std::max(count, *layer + 1);
  }
  return count;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Matrices that a forward pass multiplies with; norms, biases, routers and rotary factors stay exact.
bool is_matrix(const GgufTensor& tensor) {
  const std::string_view name = tensor.name;
  return tensor.n_dims >= 2 && name.ends_with(".weight") && !contains(name, "_norm.") &&
         !contains(name, "ffn_gate_inp") && !contains(name, "rope_freqs") && !contains(name, "pos_embd") &&
         !contains(name, "token_types");
}

/// The quarter of layers at both ends, and every third between: where extra bits are spent.
bool is_favoured(uint64_t layer, uint64_t layers) {
  const uint64_t edge = layers / 8;
  return layer < edge || layer >= 7 * layers / 8 || (layer - edge) % 3 == 2;
}

/// What stands in for a type whose blocks do not divide `cols`: fewer values per block, about the same error
/// or less.
DType alternative(DType type, uint64_t cols) {
  if (row_bytes(type, cols)) return type;
  DType smaller = kF16;
  if (type == kQ2_K || type == kQ3_K || type == kIQ4_XS) smaller = kIQ4_NL;
  if (type == kQ4_K) smaller = kQ5_0;
  if (type == kQ5_K) smaller = kQ5_1;
  if (type == kQ6_K) smaller = kQ8_0;
  return row_bytes(smaller, cols) ? smaller : kF16;
}

/// Which tensor serves as the output head.
std::string_view head_name(const GgufFile& model) {
  return model.find("output.weight") != nullptr ? "output.weight" : "token_embd.weight";
}

/// The head of a target: the head's error goes straight into the probabilities, so it never gets fewer than 6
/// bits.
DType head_type(DType base) { return is_plain(base) || base == kQ8_0 ? base : kQ6_K; }

/// The type that a mix gives to one matrix of a layer.
DType mix_type(const QuantizeTarget& target, std::string_view name, uint64_t layer, uint64_t layers) {
  const bool value = contains(name, "attn_v.") || contains(name, "attn_qkv.") || contains(name, "attn_kv_b.");
  const bool down = contains(name, "ffn_down");
  const bool output = contains(name, "attn_output.");
  const bool favoured = is_favoured(layer, layers);
  if (target.name == "Q4_K_M" || target.name == "Q5_K_M")
    return (value || down) && favoured ? kQ6_K : target.base;
  if (target.name == "Q4_K_S") return (value || down) && layer < layers / 8 ? kQ5_K : target.base;
  if (target.name == "Q3_K_M") {
    if (value) return layer < 2 ? kQ5_K : kQ4_K;
    if (down) return layer < layers / 16 ? kQ5_K : favoured ? kQ4_K : kQ3_K;
    return output ? kQ4_K : target.base;
  }
  if (target.name == "Q2_K") return value ? kQ4_K : down || output ? kQ3_K : target.base;
  return target.base;
}

/// The wanted type of a matrix, and why.
std::pair<DType, QuantizeReason> wanted_type(const GgufTensor& tensor, const QuantizeTarget& target,
                                             const QuantizeWish& wish, std::string_view head,
                                             uint64_t layers) {
  if (tensor.name == head && wish.head) return {*wish.head, QuantizeReason::kAsked};
  if (tensor.name == "token_embd.weight" && wish.embedding) return {*wish.embedding, QuantizeReason::kAsked};
  if (tensor.name == head) return {head_type(target.base), QuantizeReason::kHead};
  const auto layer = layer_of(tensor.name);
  if (!layer) return {target.base, QuantizeReason::kTarget};
  const DType mixed = mix_type(target, tensor.name, *layer, layers);
  return {mixed, mixed == target.base ? QuantizeReason::kTarget : QuantizeReason::kMix};
}

/// Whether the conversion is possible and allowed.
Status check_conversion(const TensorDecision& decision, bool allow_requantize) {
  const auto& from = dtype_info(decision.from);
  if (!from.computable) {
    return unsupported(fmt::format("tensor {} is of type {}, which cannot be converted",
                                   quote_untrusted(decision.name), from.name));
  }
  // Expanding to F32 loses nothing; anything else from a quantised source adds a second loss to the first.
  if (is_plain(decision.from) || decision.to == kF32 || allow_requantize) return ok_status();
  return failed_precondition(fmt::format(
      "tensor {} is quantised already ({}); converting it to {} would lose twice and was not allowed",
      quote_untrusted(decision.name), from.name, dtype_info(decision.to).name));
}

Status check_override(const std::optional<DType>& type) {
  if (!type || can_quantize(*type)) return ok_status();
  return unsupported(fmt::format("type {} cannot be written", dtype_info(*type).name));
}

Status unknown_target(std::string_view name) {
  std::string known;
  for (const auto& target : kTargets) known += fmt::format("{}{}", known.empty() ? "" : ", ", target.name);
  return not_found(fmt::format("there is no target {}; there are {}", quote_untrusted(name), known));
}

}  // namespace

std::span<const QuantizeTarget> quantize_targets() { return kTargets; }

const QuantizeTarget* find_quantize_target(std::string_view name) {
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
  const auto same = [&](const QuantizeTarget& target) {
    return std::ranges::equal(target.name, name, [&](char a, char b) { return a == upper(b); });
  };
  const auto at = std::ranges::find_if(kTargets, same);
  return at == kTargets.end() ? nullptr : &*at;
}

std::string_view quantize_reason_name(QuantizeReason reason) {
  constexpr std::string_view kNames[] = {"target", "mix", "head", "asked", "fallback", "kept", "unchanged"};
  return kNames[static_cast<size_t>(reason)];
}

Result<std::vector<TensorDecision>> plan_quantize(const GgufFile& model, const QuantizeWish& wish) {
  const auto* target = find_quantize_target(wish.target);
  if (target == nullptr) return unknown_target(wish.target);
  ISTHMUS_RETURN_IF_ERROR(check_override(wish.head));
  ISTHMUS_RETURN_IF_ERROR(check_override(wish.embedding));
  const auto head = head_name(model);
  const uint64_t layers = count_layers(model);
  std::vector<TensorDecision> plan;
  plan.reserve(model.tensors().size());
  for (const auto& tensor : model.tensors()) {
    TensorDecision decision{tensor.name,           tensor.type,        tensor.type,       tensor.type,
                            QuantizeReason::kKept, tensor.data.size(), tensor.data.size()};
    if (is_matrix(tensor)) {
      std::tie(decision.wanted, decision.reason) = wanted_type(tensor, *target, wish, head, layers);
      decision.to = alternative(decision.wanted, tensor.cols());
      if (decision.to != decision.wanted) decision.reason = QuantizeReason::kFallback;
      if (decision.to == decision.from) {
        decision.reason = QuantizeReason::kUnchanged;
      } else {
        ISTHMUS_RETURN_IF_ERROR(check_conversion(decision, wish.allow_requantize));
        decision.bytes_to = row_bytes(decision.to, tensor.cols()).value() * tensor.rows();
      }
    }
    plan.push_back(std::move(decision));
  }
  return plan;
}

}  // namespace isthmus
