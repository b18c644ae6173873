// Which instruction set the kernels use. Chosen once, at first use, from what the CPU has *and* the operating
// system has enabled; the environment variable ISTHMUS_ISA forces one (an unknown or impossible value is an
// error at start-up).
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace isthmus {

enum class Isa {
  kScalar,      // plain C++, every machine
  kAvx2,        // AVX2 + FMA + F16C
  kAvx512Vnni,  // AVX-512 F/BW/DQ/VL + VNNI
  kAmx,         // + AMX tiles, int8 and bf16
  kAmxModel,    // AVX-512, and the kernels of kAmx over a model of its instructions: slow, to test them
  kNeon,        // AArch64 baseline
  kNeonDot,     // + dotprod
  kNeonI8mm,    // + the 8-bit matrix multiply
};

std::string_view isa_name(Isa isa);  // "scalar", "avx2", "avx512", "amx", "amx-model", …
/// The sets that this machine can run, best last; kScalar is always the first. Never kAmxModel.
const std::vector<Isa>& available_isas();
/// These and, where it runs, kAmxModel: nothing chooses it by itself, but its name may be given.
const std::vector<Isa>& testable_isas();
/// The set of this name; kInvalidArgument, listing what would do, when it is unknown or this machine lacks
/// it.
Result<Isa> parse_isa(std::string_view name);
/// The one in use: ISTHMUS_ISA or the best available.
Result<Isa> active_isa();

}  // namespace isthmus
