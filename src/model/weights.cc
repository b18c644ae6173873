#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/checked.h"
#include "tensor/quant.h"

namespace isthmus {
namespace {

constexpr uint64_t kAlign = 64;
// The file is read and packed in slices of about this many bytes, after which its pages are dropped: the peak
// is the packed size plus one slice.
constexpr uint64_t kSliceBytes = 2ULL << 20;

std::string shape_text(uint64_t rows, uint64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

}  // namespace

Status WeightBinder::add(Request request, uint64_t bytes) {
  const auto rounded = checked_round_up<uint64_t>(bytes, kAlign);
  const auto end = rounded ? checked_add<uint64_t>(bytes_, *rounded) : std::nullopt;
  if (!end) return corrupt("tensor '" + request.tensor->name + "' is too large");
  request.offset = bytes_;
  request.bytes = bytes;
  bytes_ = *end;
  requests_.push_back(request);
  return ok_status();
}

Status WeightBinder::matrix(const std::string& tensor, size_t rows, size_t cols, PackedMatrix* out) {
  return matrix_rows(tensor, rows, 0, rows, cols, out);
}

Status WeightBinder::matrix_rows(const std::string& tensor, size_t all_rows, size_t first_row, size_t rows,
                                 size_t cols, PackedMatrix* out) {
  ISTHMUS_ASSIGN_OR_RETURN(const GgufTensor* found, file_.tensor(tensor));
  if (found->cols() != cols || found->rows() != all_rows) {
    return corrupt("tensor '" + tensor + "' has shape " + shape_text(found->rows(), found->cols()) +
                   ", the model's metadata say " + shape_text(all_rows, cols));
  }
  const auto bytes = packed_bytes(found->type, rows, cols, compute_);
  if (!bytes.ok()) return bytes.status().with_context("tensor '" + tensor + "'");
  return add(Request{found, first_row, rows, cols, 0, 0, out, nullptr}, *bytes);
}

Status WeightBinder::vector(const std::string& tensor, size_t n, const float** out) {
  ISTHMUS_ASSIGN_OR_RETURN(const GgufTensor* found, file_.tensor(tensor));
  if (found->cols() != n || found->rows() != 1) {
    return corrupt("tensor '" + tensor + "' has shape " + shape_text(found->rows(), found->cols()) +
                   ", the model's metadata say " + shape_text(1, n));
  }
  if (!dtype_info(found->type).computable) {
    return unsupported("tensor '" + tensor + "' has type " + std::string(dtype_info(found->type).name));
  }
  return add(Request{found, 0, 1, n, 0, 0, nullptr, out}, n * sizeof(float));
}

Status WeightBinder::optional_vector(const std::string& tensor, size_t n, const float** out) {
  *out = nullptr;
  return file_.find(tensor) == nullptr ? ok_status() : vector(tensor, n, out);
}

uint64_t WeightBinder::load_bytes() { return kSliceBytes; }

Result<HugeArena> WeightBinder::load(ThreadPool& pool, const LoadProgress& progress, const StopPolicy& stop) {
  ISTHMUS_ASSIGN_OR_RETURN(HugeArena arena, HugeArena::allocate(static_cast<size_t>(bytes_)));
  uint64_t done = 0;
  for (const Request& request : requests_) {
    ISTHMUS_RETURN_IF_ERROR(stop.check());
    const Status packed = pack(request, arena.data(), pool);
    ISTHMUS_RETURN_IF_ERROR(file_.intact());  // else zeros were packed
    ISTHMUS_RETURN_IF_ERROR(packed.with_context("tensor '" + request.tensor->name + "'"));
    done += request.bytes;
    if (progress) progress(done, bytes_);
  }
  ISTHMUS_RETURN_IF_ERROR(adopt(arena.data()));
  return arena;
}

Status WeightBinder::pack(const Request& request, std::byte* arena, ThreadPool& pool) {
  const GgufTensor& tensor = *request.tensor;
  std::byte* target = arena + request.offset;
  if (request.out_vector != nullptr) {
    auto* values = reinterpret_cast<float*>(target);
    ISTHMUS_RETURN_IF_ERROR(dequantize_row(tensor.type, tensor.data.data(), request.cols, values));
    file_.release_pages(tensor, 0, tensor.data.size());
    return ok_status();
  }
  const auto row = row_bytes(tensor.type, request.cols);
  if (!row) return corrupt("its rows are not whole blocks");
  const std::byte* source = tensor.data.data() + request.first_row * *row;
  const size_t panels = (request.rows + kPanelRows - 1) / kPanelRows;
  const size_t slice =
      std::max<size_t>(pool.size(), static_cast<size_t>(kSliceBytes / (*row * kPanelRows) + 1));
  std::mutex mutex;
  Status first_error;
  for (size_t begin = 0; begin < panels && first_error.ok(); begin += slice) {
    const size_t end = std::min(panels, begin + slice);
    pool.run([&](Worker& worker) {
      const auto [first, last] = worker.range(end - begin);
      if (first == last) return;
      const std::byte* rows = source + (begin + first) * kPanelRows * *row;
      const Status status = pack_panels(tensor.type, rows, request.rows, request.cols, compute_,
                                        begin + first, begin + last, target);
      const std::lock_guard<std::mutex> lock(mutex);
      if (first_error.ok()) first_error = status;
    });
    const size_t last_row = std::min(request.rows, end * kPanelRows);
    file_.release_pages(tensor, (request.first_row + begin * kPanelRows) * *row,
                        (last_row - begin * kPanelRows) * *row);
  }
  return first_error;
}

Status WeightBinder::set_view(const Request& request, const std::byte* arena) const {
  const std::byte* data = arena + request.offset;
  if (request.out_vector != nullptr) {
    *request.out_vector = reinterpret_cast<const float*>(data);
    return ok_status();
  }
  ISTHMUS_ASSIGN_OR_RETURN(const PackFormat format, pack_format(request.tensor->type, compute_));
  *request.out_matrix = PackedMatrix{format, request.rows, request.cols, data};
  return ok_status();
}

Status WeightBinder::adopt(const std::byte* arena) {
  for (const Request& request : requests_) ISTHMUS_RETURN_IF_ERROR(set_view(request, arena));
  return ok_status();
}

std::vector<PackedEntry> WeightBinder::entries() const {
  std::vector<PackedEntry> out;
  for (const Request& request : requests_) {
    out.push_back({request.tensor->name, request.out_vector != nullptr,
                   static_cast<uint32_t>(request.tensor->type), request.first_row, request.rows, request.cols,
                   request.offset, request.bytes});
  }
  return out;
}

}  // namespace isthmus
