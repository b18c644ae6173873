// The kernel tables that the instruction set folders define; float_registry.cc chooses among them.
#pragma once

#include "kernels/float_kernels.h"
#include "kernels/generic/attention_kernels.h"

namespace isthmus {

extern const FloatKernels kFloatKernelsScalar;
extern const FloatKernels kFloatKernelsAvx2;
extern const FloatKernels kFloatKernelsAvx512;
extern const FloatKernels kFloatKernelsNeon;
extern const AttentionKernels kAttentionKernelsScalar;
extern const AttentionKernels kAttentionKernelsAvx2;
extern const AttentionKernels kAttentionKernelsAvx512;
extern const AttentionKernels kAttentionKernelsNeon;
extern const AttentionKernels kAttentionKernelsNeonDot;

}  // namespace isthmus
