#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "ops/linear.h"

namespace isthmus {
namespace {

/// Records reach to the end of the longest unit of any format: 8 blocks.
size_t padded_blocks(size_t cols) { return round_up(cols, 8 * kBlockCols) / kBlockCols; }

size_t record_size(Compute compute, const LinearKernels& kernels) {
  if (compute == Compute::kF32) return 0;
  if (compute == Compute::kBf16) return kBf16RecordBytes;
  return kernels.record_bytes[static_cast<size_t>(compute)];
}

/// Tiles of bfloat16 take whole strips: what lies behind the last token is multiplied and thrown away.
size_t held_tokens(size_t tokens, Compute compute) {
  return compute == Compute::kBf16 ? round_up(tokens, kStripTokens) : tokens;
}

}  // namespace

size_t Activations::bytes(size_t tokens, size_t cols, Compute compute, const LinearKernels& kernels) {
  return round_up(held_tokens(tokens, compute) * padded_blocks(cols) * record_size(compute, kernels),
                  kVectorBytes);
}

Activations::Activations(const float* x, size_t ldx, size_t tokens, size_t cols, Compute compute,
                         std::byte* memory, const LinearKernels& kernels)
    : x_(x),
      ldx_(ldx),
      tokens_(tokens),
      cols_(cols),
      compute_(compute),
      memory_(memory),
      kernels_(&kernels),
      record_bytes_(record_size(compute, kernels)),
      strip_(compute == Compute::kBf16 ? kStripTokens : kernels.strip_tokens) {}

size_t Activations::tile_stride(size_t tile) const {
  const size_t first = tile * kMaxTokens / strip_ * strip_;
  return std::min(strip_, held_tokens(tokens_, compute_) - first) * record_bytes_;
}

size_t Activations::strip_bytes() const { return strip_ * padded_blocks(cols_) * record_bytes_; }

std::byte* Activations::record(size_t tile, size_t token, size_t block) const {
  const size_t first = tile * kMaxTokens;
  return memory_ + first / strip_ * strip_bytes() + block * tile_stride(tile) +
         (first % strip_ + token) * record_bytes_;
}

void quantize_activations(const Activations& out, size_t first, size_t last) {
  if (out.compute() == Compute::kF32) return;
  const bool bf16 = out.compute() == Compute::kBf16;
  const QuantizeKernel quantize =
      bf16 ? out.kernels().round_bf16 : out.kernels().quantize[static_cast<size_t>(out.compute())];
  const size_t bytes = record_size(out.compute(), out.kernels());
  const size_t blocks = round_up(out.cols(), kBlockCols) / kBlockCols;
  for (size_t token = first; token < last; ++token) {
    const size_t tile = token / kMaxTokens;
    const size_t in_tile = token % kMaxTokens;
    quantize(out.row(token), out.cols(), out.record(tile, in_tile, 0), out.tile_stride(tile));
    for (size_t block = blocks; block < padded_blocks(out.cols()); ++block) {
      std::memset(out.record(tile, in_tile, block), 0, bytes);
    }
  }
}

}  // namespace isthmus
