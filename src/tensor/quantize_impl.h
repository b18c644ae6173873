// Private to src/tensor: one function per block type that turns 32 or 256 values into a block.
//
// `w` holds the weights of the values (fit_weights()). Values are finite; the result is checked by the caller
// only for scales that overflowed f16. Pure, any thread, no errors.
#pragma once

#include "tensor/quant_blocks.h"

namespace isthmus::quant {

void quantize(const float* x, const float* w, BlockQ4_0& block);
void quantize(const float* x, const float* w, BlockQ4_1& block);
void quantize(const float* x, const float* w, BlockQ5_0& block);
void quantize(const float* x, const float* w, BlockQ5_1& block);
void quantize(const float* x, const float* w, BlockQ8_0& block);
void quantize(const float* x, const float* w, BlockIQ4_NL& block);
void quantize(const float* x, const float* w, BlockMXFP4& block);
void quantize(const float* x, const float* w, BlockQ2_K& block);
void quantize(const float* x, const float* w, BlockQ3_K& block);
void quantize(const float* x, const float* w, BlockQ4_K& block);
void quantize(const float* x, const float* w, BlockQ5_K& block);
void quantize(const float* x, const float* w, BlockQ6_K& block);
void quantize(const float* x, const float* w, BlockIQ4_XS& block);

}  // namespace isthmus::quant
