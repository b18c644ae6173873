// The lanes come first: the kernels are written over them.
// clang-format off
#include "kernels/scalar/vec16_scalar.h"
#include "kernels/scalar/quads_scalar.h"
#include "kernels/scalar/pairs_scalar.h"
#include "kernels/generic/attention_impl.h"
// clang-format on
#include "kernels/generic/float_tables.h"

namespace isthmus {

constinit const AttentionKernels kAttentionKernelsScalar = make_attention_kernels();

}  // namespace isthmus
