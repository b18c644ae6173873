// The lanes come first: the kernels are written over them.
// clang-format off
#include "kernels/scalar/vec16_scalar.h"
#include "kernels/generic/float_impl.h"
// clang-format on
#include "kernels/generic/float_tables.h"

namespace isthmus {

constinit const FloatKernels kFloatKernelsScalar = make_float_kernels();

}  // namespace isthmus
