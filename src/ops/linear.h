// Matrix products y = W x for all weight types: packing, quantised activations, and the threaded driver.
//
// A weight matrix is packed once into panels of 16 rows (kernels/panel_layout.h); activations are quantised
// once per layer input and shared by all products that read them. Arithmetic of the quantised types (class
// `int`, the same bits on every instruction set, batch size, tile and thread count):
//   per token and block of 32 columns: s = max|x| / 127 (kInt8) or / 32512 (kInt16), q = round-half-even(x /
//   s); per output one float32 chain over the blocks, ascending; in a block first columns 0-15 then 16-31
//   where the type has a scale per 16, else all 32 at once: acc = fma(float(sum w q), scale_w * s, acc), the
//   sum exact in int32; then, where the type has a minimum, acc = fma(min_w, s * float(sum q), acc).
// F32, F16 and BF16 weights use float32 activations: acc = fma(w, x, acc), columns ascending. Class `fast`
// (kBf16, where the set has tiles) rounds weights of every type (fma(code, scale, min) in float32 first) and
// activations to bfloat16; sums are those of the tile instruction, blocks of 32 columns ascending: the same
// bits for any batch, tile and thread count; NaN and infinities go where IEEE 754 sends them. The epilogue
// adds the bias, then (accumulate) y. A block of x with a NaN or infinity makes its products NaN; a block
// whose largest magnitude is below 2^-100 counts as zero.
//
// Memory is the caller's; the one exception is a scratch of kLinearScratchBytes per thread that runs products
// of 9 or more tokens, kept for the thread's life. Preconditions (checked by assertions in debug builds):
// matrix and activations agree in columns; Compute::kF32 activations meet only plain formats, Compute::kBf16
// ones only kernels that have_bf16(). All functions
// are safe on any thread for distinct outputs. No function here waits for another thread.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "kernels/float_kernels.h"
#include "kernels/linear_kernels.h"
#include "kernels/panel_layout.h"
#include "tensor/dtype.h"
#include "threads/pool.h"

namespace isthmus {

/// A thread's scratch: unpacked weights of the panels that it works on, sized for the second-level cache, and
/// the sums of a step's tokens where rows are too wide to be unpacked whole.
inline constexpr size_t kLinearWeightBytes = size_t{768} * 1024;
inline constexpr size_t kLinearSumBytes = size_t{256} * 1024;
inline constexpr size_t kLinearScratchBytes = kLinearWeightBytes + kLinearSumBytes;

/// Whether products may use Compute::kBf16.
inline bool have_bf16(const LinearKernels& kernels = linear_kernels()) { return kernels.dot_bf16 != nullptr; }

/// View of a packed matrix of `rows` x `cols`; `data` is 64-byte aligned and outlives the view.
struct PackedMatrix {
  PackFormat format;
  size_t rows;
  size_t cols;
  const std::byte* data;
};

/// The format that `type` is packed to; kUnsupported, naming the type, when it cannot be computed with.
Result<PackFormat> pack_format(DType type, Compute compute);
/// Size of the packed matrix, a multiple of 64. kUnsupported names the type; kInvalidArgument when a row is
/// not a whole number of blocks or the size overflows.
Result<size_t> packed_bytes(DType type, size_t rows, size_t cols, Compute compute);
/// Packs panels [first_panel, last_panel) into their place in the whole matrix at `dst`. `src_rows` is the
/// first row of first_panel, as in a GGUF file (any alignment). Any split over panels or threads gives the
/// same bytes.
Status pack_panels(DType type, const std::byte* src_rows, size_t rows, size_t cols, Compute compute,
                   size_t first_panel, size_t last_panel, std::byte* dst);
/// One row as floats, equal bit for bit to dequantize_row() of its source: out[cols].
void unpack_row(const PackedMatrix& matrix, size_t row, float* out);

/// The activations that products share: a view over the caller's float rows x[tokens][ldx] and over `memory`
/// (64-byte aligned, bytes(tokens, cols, compute), may be null for kF32), both of which outlive it. Valid for
/// products once quantize_activations() has covered all tokens. Products run on the instruction set whose
/// kernels the view was made with.
class Activations {
 public:
  /// Bytes of `memory`, a multiple of 64; 0 for kF32.
  static size_t bytes(size_t tokens, size_t cols, Compute compute,
                      const LinearKernels& kernels = linear_kernels());

  Activations(const float* x, size_t ldx, size_t tokens, size_t cols, Compute compute, std::byte* memory,
              const LinearKernels& kernels = linear_kernels());

  size_t tokens() const { return tokens_; }
  size_t cols() const { return cols_; }
  Compute compute() const { return compute_; }
  const LinearKernels& kernels() const { return *kernels_; }
  const float* row(size_t token) const { return x_ + token * ldx_; }
  size_t ldx() const { return ldx_; }

  /// Tiles of kMaxTokens tokens, the last with what remains.
  size_t tiles() const { return (tokens_ + kMaxTokens - 1) / kMaxTokens; }
  size_t tile_tokens(size_t tile) const {
    const size_t rest = tokens_ - tile * kMaxTokens;
    return rest < kMaxTokens ? rest : kMaxTokens;
  }
  /// Record of block `block` of token `token` (0 .. tile_tokens - 1) of a tile; the same token's next block
  /// is tile_stride() bytes on, the next token's record follows. There are records to a multiple of 256
  /// columns, those past the end zero.
  std::byte* record(size_t tile, size_t token, size_t block) const;
  size_t tile_stride(size_t tile) const;
  size_t record_bytes() const { return record_bytes_; }

  /// Strips of kernels().strip_tokens tokens: where that is more than a tile, the records of a block lie
  /// together for a strip, so that the tiles of a strip are neighbours.
  size_t strip_tokens() const { return strip_; }
  size_t whole_strips() const { return tokens_ / strip_; }
  size_t strip_bytes() const;

 private:
  const float* x_;
  size_t ldx_;
  size_t tokens_;
  size_t cols_;
  Compute compute_;
  std::byte* memory_;
  const LinearKernels* kernels_;
  size_t record_bytes_;  // 0 for kF32
  size_t strip_;
};

/// Quantises token rows [first, last) from the float rows into the view's memory; any split over threads
/// gives the same bits. Nothing to do for kF32.
void quantize_activations(const Activations& out, size_t first, size_t last);

/// One product: y[token][row] (row stride ldy) = W x + bias, or += with `accumulate` (the residual).
struct LinearTask {
  const PackedMatrix* w;
  float* y;
  size_t ldy;
  const float* bias = nullptr;  // [rows], or null
  bool accumulate = false;
};

/// Runs all tasks over the same activations. Called by every thread of a region; the union of the panels is
/// split over worker.count() threads in contiguous shares of equal cost. No barrier inside: the outputs are
/// complete after the caller's next barrier.
void linear(std::span<const LinearTask> tasks, const Activations& x, const Worker& worker);

/// y[token][row] = act(gate x) * (up x), for two matrices of equal shape; as linear() otherwise.
void linear_gated(const PackedMatrix& gate, const PackedMatrix& up, Gate kind, const Activations& x, float* y,
                  size_t ldy, const Worker& worker);

}  // namespace isthmus
