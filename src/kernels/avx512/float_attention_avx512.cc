// The lanes come first: the kernels are written over them.
// clang-format off
#include "kernels/avx512/vec16_avx512.h"
#include "kernels/avx512/quads_avx512.h"
#include "kernels/avx512/pairs_avx512.h"
#include "kernels/generic/attention_impl.h"
// clang-format on
#include "kernels/generic/float_tables.h"

namespace isthmus {

constinit const AttentionKernels kAttentionKernelsAvx512 = make_attention_kernels();

}  // namespace isthmus
