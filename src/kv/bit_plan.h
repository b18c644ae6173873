// Which bits each layer's keys and values get when only so much memory is there: a choice among measured
// losses.
//
// Like KVTuner (Li et al. 2025, arXiv 2502.04420) and AsymKV (Tao et al. 2025, arXiv 2410.13212) it takes
// layers and keys and values to bear coding differently; unlike theirs, the loss of each is measured alone
// and the sum made least exactly, which takes the losses to add up. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/kv_codec.h"

namespace isthmus {

inline constexpr std::array<int, 5> kPlanBits = {1, 2, 4, 8, 16};

/// Loss of coding one layer's keys (or values) alone with kPlanBits[i] bits; of 16 bits it is 0.
using BitLosses = std::array<double, kPlanBits.size()>;

/// Bits that a value takes when it is coded with `bits`: its share of scale and minimum is one bit.
constexpr int held_bits(int bits) { return bits == 16 ? 16 : bits + 1; }

/// The bits of each layer, with the least sum of losses of all plans whose mean held_bits() is at most
/// `mean_bits`; of equal ones the one with the fewest bits. losses: keys of layer 0, values of layer 0, keys
/// of layer 1 … kInvalidArgument when `mean_bits` is below 2 (what 1 bit takes) or a loss is not a number.
Result<std::vector<KvBits>> plan_kv_bits(std::span<const BitLosses> losses, double mean_bits);
/// Mean held_bits() of a codec over `layers` layers.
double mean_held_bits(const KvCodec& codec, size_t layers);

}  // namespace isthmus
