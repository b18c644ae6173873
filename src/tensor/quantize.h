// Writing quantised rows: from floats to the blocks of quant_blocks.h, with a search for the scales that lose
// least.
//
// Every type is fitted by weighted least squares (quantize_fit.h): candidates for the scale, the best one
// refined, then rounded to what the block can store, then the codes chosen for the stored scale.
// Deterministic: the same bits on every machine and thread count (plain f32 arithmetic in fixed order). Pure
// functions over the caller's memory, any thread.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "tensor/dtype.h"

namespace isthmus {

/// Whether quantize_row() can write this type: the computable ones.
bool can_quantize(DType type);

/// Writes one row of `cols` floats as row_bytes(type, cols) bytes at any alignment. `importance` holds one
/// weight >= 0 per column (an importance matrix's mean squared activation), or is null. kUnsupported for a
/// type that cannot be written; kInvalidArgument when cols is not a multiple of the block, or a value is not
/// finite or too large for the type's half-precision scale (the message names the column).
Status quantize_row(DType type, const float* in, size_t cols, const float* importance, std::byte* out);

}  // namespace isthmus
