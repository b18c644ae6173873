// Reading quantised rows: the plain, slow, obviously right way from a block to floats.
//
// This is the oracle that every kernel and packer is tested against. Arithmetic is f32 in the order that the
// block definitions give (no fused multiply-add), so the result equals llama.cpp's reference dequantisation
// bit for bit. Pure functions over the caller's memory, safe on any thread. Layouts are in quant_blocks.h;
// writing is in quantize.h.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "tensor/dtype.h"

namespace isthmus {

/// Expands one row: `row` holds row_bytes(type, cols) bytes at any alignment, `out` takes `cols` floats.
/// kUnsupported for a type that is not computable, kInvalidArgument when cols is not a multiple of the block.
Status dequantize_row(DType type, const std::byte* row, size_t cols, float* out);

}  // namespace isthmus
