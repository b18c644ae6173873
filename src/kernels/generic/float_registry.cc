#include "kernels/generic/float_tables.h"
#include "kernels/isa.h"

namespace isthmus {
namespace {

Isa chosen_isa() {
  static const Isa isa = [] {
    const auto active = active_isa();
    return active.ok() ? active.value() : Isa::kScalar;
  }();
  return isa;
}

struct Tables {
  const FloatKernels& floats;
  const AttentionKernels& attention;
};

Tables tables_for([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Vnni || isa == Isa::kAmx || isa == Isa::kAmxModel)
    return {kFloatKernelsAvx512, kAttentionKernelsAvx512};
  if (isa == Isa::kAvx2) return {kFloatKernelsAvx2, kAttentionKernelsAvx2};
#elif defined(__aarch64__)
  if (isa == Isa::kNeonDot || isa == Isa::kNeonI8mm) return {kFloatKernelsNeon, kAttentionKernelsNeonDot};
  if (isa == Isa::kNeon) return {kFloatKernelsNeon, kAttentionKernelsNeon};
#endif
  return {kFloatKernelsScalar, kAttentionKernelsScalar};
}

}  // namespace

const FloatKernels& float_kernels_for(Isa isa) { return tables_for(isa).floats; }
const FloatKernels& float_kernels() {
  static const FloatKernels& table = float_kernels_for(chosen_isa());
  return table;
}
const AttentionKernels& attention_kernels_for(Isa isa) { return tables_for(isa).attention; }
const AttentionKernels& attention_kernels() {
  static const AttentionKernels& table = attention_kernels_for(chosen_isa());
  return table;
}

}  // namespace isthmus
