#include "kernels/avx2/linear_vec.h"
#include "kernels/generic/linear_table.h"

namespace isthmus::kernels {

void avx2_super_formats(LinearKernels& table);
void avx2_super_formats(LinearKernels& table) { fill_super_formats<Avx2Vec>(table); }

}  // namespace isthmus::kernels
