// The weights of one model in memory: matrices packed for the kernels, vectors as float32, all in one arena.
//
// Loading has two steps. A WeightBinder collects what the model needs (tensor, rows, where the view goes) and
// computes the bytes; only when the plan has been accepted and charged does load() allocate, read the file in
// slices, pack with all threads, and let the file's pages go again, so that memory never holds a tensor
// twice. Where the packed bytes are at hand already (packed_cache.h), adopt() takes them instead.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/ledger.h"
#include "base/status.h"
#include "format/gguf.h"
#include "model/packed_format.h"
#include "ops/linear.h"
#include "os/mmap.h"
#include "threads/pool.h"

namespace isthmus {

/// One layer. Absent tensors are null. Matrices are [output rows, input columns].
struct LayerWeights {
  const float* attn_norm = nullptr;       // [d_model]
  const float* ffn_norm = nullptr;        // [d_model]
  const float* q_norm = nullptr;          // [head_dim]
  const float* k_norm = nullptr;          // [head_dim]
  const float* post_attn_norm = nullptr;  // [d_model]
  const float* post_ffn_norm = nullptr;   // [d_model]
  const float* bq = nullptr;              // [q_dim]
  const float* bk = nullptr;              // [kv_dim]
  const float* bv = nullptr;              // [kv_dim]
  const float* bo = nullptr;              // [d_model]
  PackedMatrix wq{};                      // [q_dim, d_model]
  PackedMatrix wk{};                      // [kv_dim, d_model]
  PackedMatrix wv{};                      // [kv_dim, d_model]
  PackedMatrix wo{};                      // [d_model, q_dim]
  PackedMatrix gate{};                    // [d_ff, d_model]
  PackedMatrix up{};                      // [d_ff, d_model]
  PackedMatrix down{};                    // [d_model, d_ff]
};

struct ModelWeights {
  /// Token embeddings: a view of `head` when tied, else rows of the mapped file.
  const GgufTensor* embedding = nullptr;
  PackedMatrix head{};                 // [vocab, d_model]
  const float* output_norm = nullptr;  // [d_model]
  std::vector<LayerWeights> layers;
};

/// Loading progress: bytes packed so far and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

class WeightBinder {
 public:
  WeightBinder(const GgufFile& file, Compute compute) : file_(file), compute_(compute) {}

  /// Needs matrix `tensor` [rows, cols]; `*out` becomes its packed view. kNotFound, or kCorrupt naming both
  /// shapes.
  Status matrix(const std::string& tensor, size_t rows, size_t cols, PackedMatrix* out);
  /// The same for rows [first_row, first_row + rows) of a fused tensor that has `all_rows` rows.
  Status matrix_rows(const std::string& tensor, size_t all_rows, size_t first_row, size_t rows, size_t cols,
                     PackedMatrix* out);
  /// Needs vector `tensor` of n values, kept as float32.
  Status vector(const std::string& tensor, size_t n, const float** out);
  /// The same, but an absent tensor leaves *out null.
  Status optional_vector(const std::string& tensor, size_t n, const float** out);

  /// Bytes of the arena that load() will allocate.
  uint64_t planned_bytes() const { return bytes_; }
  /// Resident bytes of the file, on top of the arena, that load() needs at a time.
  static uint64_t load_bytes();
  /// Allocates, reads and packs everything. kCorrupt when the file is truncated meanwhile. The binder is done
  /// after this.
  Result<HugeArena> load(ThreadPool& pool, const LoadProgress& progress, const StopPolicy& stop);
  /// What load() would put where.
  std::vector<PackedEntry> entries() const;
  /// `arena` holds what load() would have made: points the views into it. The binder is done after this.
  Status adopt(const std::byte* arena);

 private:
  struct Request {
    const GgufTensor* tensor = nullptr;
    size_t first_row = 0;
    size_t rows = 0;
    size_t cols = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    PackedMatrix* out_matrix = nullptr;
    const float** out_vector = nullptr;
  };
  Status add(Request request, uint64_t bytes);
  Status pack(const Request& request, std::byte* arena, ThreadPool& pool);
  Status set_view(const Request& request, const std::byte* arena) const;

  const GgufFile& file_;
  const Compute compute_;
  std::vector<Request> requests_;
  uint64_t bytes_ = 0;
};

}  // namespace isthmus
