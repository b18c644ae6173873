#include "kernels/avx512/linear_vec.h"
#include "kernels/generic/linear_table.h"

namespace isthmus::kernels {

void avx512_super_formats(LinearKernels& table);
void avx512_super_formats(LinearKernels& table) { fill_super_formats<Avx512Vec>(table); }

}  // namespace isthmus::kernels
