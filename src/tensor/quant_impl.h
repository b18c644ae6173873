// Private to src/tensor: one dequantisation function per block type, chosen by overload in quant.cc.
//
// Each expands one block to its 32 or 256 values. Pure, no errors, any thread.
#pragma once

#include "tensor/quant_blocks.h"

namespace isthmus::quant {

void dequantize(const BlockQ4_0& block, float* out);
void dequantize(const BlockQ4_1& block, float* out);
void dequantize(const BlockQ5_0& block, float* out);
void dequantize(const BlockQ5_1& block, float* out);
void dequantize(const BlockQ8_0& block, float* out);
void dequantize(const BlockIQ4_NL& block, float* out);
void dequantize(const BlockMXFP4& block, float* out);
void dequantize(const BlockQ2_K& block, float* out);
void dequantize(const BlockQ3_K& block, float* out);
void dequantize(const BlockQ4_K& block, float* out);
void dequantize(const BlockQ5_K& block, float* out);
void dequantize(const BlockQ6_K& block, float* out);
void dequantize(const BlockIQ4_XS& block, float* out);

}  // namespace isthmus::quant
