// The lanes come first: the kernels are written over them.
// clang-format off
#include "kernels/avx512/vec16_avx512.h"
#include "kernels/generic/float_impl.h"
// clang-format on
#include "kernels/generic/float_tables.h"

namespace isthmus {

constinit const FloatKernels kFloatKernelsAvx512 = make_float_kernels();

}  // namespace isthmus
