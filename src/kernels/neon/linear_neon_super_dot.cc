#include "kernels/generic/linear_table.h"
#include "kernels/neon/linear_vec.h"

namespace isthmus::kernels {

void neon_dot_super_formats(LinearKernels& table);
void neon_dot_super_formats(LinearKernels& table) { fill_super_formats<NeonVec>(table); }

}  // namespace isthmus::kernels
