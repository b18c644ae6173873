// The lanes come first: the kernels are written over them.
// clang-format off
#include "kernels/neon/vec16_neon.h"
#include "kernels/neon/quads_neon.h"
#include "kernels/neon/pairs_neon.h"
#include "kernels/generic/attention_impl.h"
// clang-format on
#include "kernels/generic/float_tables.h"

namespace isthmus {

constinit const AttentionKernels kAttentionKernelsNeon = make_attention_kernels();

}  // namespace isthmus
