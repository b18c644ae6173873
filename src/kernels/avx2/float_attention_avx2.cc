// The lanes come first: the kernels are written over them.
// clang-format off
#include "kernels/avx2/vec16_avx2.h"
#include "kernels/avx2/quads_avx2.h"
#include "kernels/avx2/pairs_avx2.h"
#include "kernels/generic/attention_impl.h"
// clang-format on
#include "kernels/generic/float_tables.h"

namespace isthmus {

constinit const AttentionKernels kAttentionKernelsAvx2 = make_attention_kernels();

}  // namespace isthmus
