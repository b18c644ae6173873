#include "format/quantize_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <thread>

#include "format/gguf_parse.h"
#include "format/gguf_writer.h"
#include "os/mmap.h"
#include "tensor/quant.h"
#include "tensor/quantize.h"

namespace isthmus {
namespace {

constexpr size_t kPieceValues = size_t{4} << 20;  // converted between two writes: 16 MiB as float
constexpr size_t kCopyBytes = size_t{16} << 20;
constexpr uint32_t kQuantizationVersion = 2;  // the block layouts of quant_blocks.h

constexpr std::string_view kDroppedKeys[] = {"split.no", "split.count", "split.tensors.count"};

/// What one row lost: sums of (new - old)^2 and old^2.
struct RowError {
  double error = 0.0;
  double power = 0.0;
};

/// Runs body(first, last) over [0, n) on up to `threads` threads; the caller's is one of them.
template <class Body>
void parallel_ranges(size_t n, size_t threads, const Body& body) {
  const size_t parts = std::clamp<size_t>(threads, 1, std::max<size_t>(n, 1));
  std::vector<std::thread> workers;
  size_t started = 1;  // part 0 is the caller's
  try {
    for (; started < parts; ++started) {
      workers.emplace_back(body, n * started / parts, n * (started + 1) / parts);
    }
  } catch (const std::system_error&) {
    // No more threads to be had: the caller does the rest. Only time is lost.
  }
  body(size_t{0}, n / parts);
  if (started < parts) body(n * started / parts, n);
  for (auto& worker : workers) worker.join();
}

/// Converts the rows of one tensor, piece by piece.
class TensorConverter {
 public:
  TensorConverter(const GgufTensor& tensor, DType to, const std::vector<float>* importance, size_t threads)
      : tensor_(tensor),
        to_(to),
        importance_(importance),
        threads_(threads),
        cols_(static_cast<size_t>(tensor.cols())),
        from_bytes_(static_cast<size_t>(row_bytes(tensor.type, tensor.cols()).value())),
        to_bytes_(static_cast<size_t>(row_bytes(to, tensor.cols()).value())) {}

  size_t rows_per_piece() const { return std::max<size_t>(kPieceValues / cols_, 1); }

  /// The new bytes of rows [first, last); valid until the next call.
  Result<std::span<const std::byte>> convert(size_t first, size_t last) {
    const size_t n = last - first;
    out_.resize(n * to_bytes_);
    errors_.assign(n, {});
    statuses_.assign(n, {});
    parallel_ranges(n, threads_, [&](size_t begin, size_t end) { convert_rows(first, begin, end); });
    for (size_t i = 0; i < n; ++i) {  // the lowest row's error, whichever thread met one first
      if (statuses_[i].ok()) continue;
      return corrupt(fmt::format("tensor {} row {}: {}", quote_untrusted(tensor_.name), first + i,
                                 statuses_[i].message()));
    }
    for (const auto& row : errors_) {
      total_.error += row.error;
      total_.power += row.power;
    }
    return std::span<const std::byte>(out_);
  }

  double relative_rms() const { return total_.power > 0.0 ? std::sqrt(total_.error / total_.power) : 0.0; }

 private:
  void convert_rows(size_t first, size_t begin, size_t end) {
    std::vector<float> before(cols_);
    std::vector<float> after(cols_);
    for (size_t i = begin; i < end; ++i) {
      const std::byte* source = tensor_.data.data() + (first + i) * from_bytes_;
      std::byte* target = out_.data() + i * to_bytes_;
      auto& status = statuses_[i];
      status = dequantize_row(tensor_.type, source, cols_, before.data());
      if (status.ok()) status = quantize_row(to_, before.data(), cols_, importance_of(first + i), target);
      if (status.ok()) status = dequantize_row(to_, target, cols_, after.data());
      if (!status.ok()) return;
      for (size_t c = 0; c < cols_; ++c) {
        const double lost = static_cast<double>(after[c]) - before[c];
        errors_[i].error += lost * lost;
        errors_[i].power += static_cast<double>(before[c]) * before[c];
      }
    }
  }

  const float* importance_of(size_t row) const {
    if (importance_ == nullptr) return nullptr;
    const size_t matrix = importance_->size() == cols_ ? 0 : row / static_cast<size_t>(tensor_.dims[1]);
    return importance_->data() + matrix * cols_;
  }

  const GgufTensor& tensor_;
  DType to_;
  const std::vector<float>* importance_;
  size_t threads_;
  size_t cols_;
  size_t from_bytes_;
  size_t to_bytes_;
  std::vector<std::byte> out_;
  std::vector<RowError> errors_;
  std::vector<Status> statuses_;
  RowError total_;
};

/// Runs the whole conversion.
class ModelConverter {
 public:
  ModelConverter(const GgufFile& model, const QuantizeOptions& options) : model_(model), options_(options) {}

  Result<QuantizeReport> run(FileSystem& files, const std::string& path) {
    ISTHMUS_ASSIGN_OR_RETURN(auto plan, plan_quantize(model_, options_.wish));
    ISTHMUS_RETURN_IF_ERROR(check_target(files, path));
    ISTHMUS_ASSIGN_OR_RETURN(auto header, make_header(plan));
    for (const auto& decision : plan) progress_.bytes_total += decision.bytes_from;
    progress_.tensors = plan.size();
    ISTHMUS_ASSIGN_OR_RETURN(auto writer, GgufWriter::create(files, path, std::move(header)));
    QuantizeReport report;
    for (size_t i = 0; i < plan.size(); ++i) {
      progress_.tensor = i;
      progress_.name = model_.tensors()[i].name;
      ISTHMUS_ASSIGN_OR_RETURN(auto done, convert(model_.tensors()[i], plan[i], writer));
      report.tensors.push_back(std::move(done));
    }
    ISTHMUS_RETURN_IF_ERROR(options_.stop.check());
    ISTHMUS_RETURN_IF_ERROR(writer.publish());
    finish(report, writer.bytes_written());
    return report;
  }

 private:
  Status check_target(FileSystem& files, const std::string& path) const {
    if (!files.exists(path)) return ok_status();
    const auto target = file_identity(path);
    for (const auto& source : model_.paths()) {
      const auto identity = file_identity(source);
      if (target.ok() && identity.ok() && target->device == identity->device &&
          target->inode == identity->inode) {
        return failed_precondition(fmt::format("'{}' is the model itself; name another file", path));
      }
    }
    if (options_.overwrite) return ok_status();
    return failed_precondition(fmt::format("'{}' exists already", path));
  }

  Result<GgufHeader> make_header(const std::vector<TensorDecision>& plan) const {
    GgufHeader header;
    for (const auto& key : model_.keys()) {
      if (std::ranges::find(kDroppedKeys, key) != std::end(kDroppedKeys)) continue;
      ISTHMUS_RETURN_IF_ERROR(header.copy(model_, key));
    }
    const uint32_t file_type = find_quantize_target(options_.wish.target)->file_type;
    ISTHMUS_RETURN_IF_ERROR(header.set("general.file_type", file_type));
    ISTHMUS_RETURN_IF_ERROR(header.set("general.quantization_version", kQuantizationVersion));
    for (size_t i = 0; i < plan.size(); ++i) {
      const auto& tensor = model_.tensors()[i];
      ISTHMUS_RETURN_IF_ERROR(
          header.add_tensor(tensor.name, plan[i].to, std::span(tensor.dims).first(tensor.n_dims)));
    }
    return header;
  }

  Result<TensorReport> convert(const GgufTensor& tensor, const TensorDecision& decision, GgufWriter& writer) {
    TensorReport report{decision};
    if (decision.from == decision.to) {
      ISTHMUS_RETURN_IF_ERROR(copy(tensor, writer));
    } else {
      ISTHMUS_ASSIGN_OR_RETURN(const auto* importance, importance_for(tensor));
      report.weighted = importance != nullptr;
      TensorConverter converter(tensor, decision.to, importance, options_.threads);
      const auto rows = static_cast<size_t>(tensor.rows());
      for (size_t first = 0; first < rows; first += converter.rows_per_piece()) {
        const size_t last = std::min(rows, first + converter.rows_per_piece());
        ISTHMUS_RETURN_IF_ERROR(options_.stop.check());
        ISTHMUS_ASSIGN_OR_RETURN(const auto bytes, converter.convert(first, last));
        ISTHMUS_RETURN_IF_ERROR(writer.append(bytes));
        advance(tensor, decision.bytes_from / rows * first, decision.bytes_from / rows * (last - first));
      }
      report.relative_rms = converter.relative_rms();
    }
    return report;
  }

  Status copy(const GgufTensor& tensor, GgufWriter& writer) {
    for (size_t at = 0; at < tensor.data.size(); at += kCopyBytes) {
      const auto piece = tensor.data.subspan(at, std::min(kCopyBytes, tensor.data.size() - at));
      ISTHMUS_RETURN_IF_ERROR(options_.stop.check());
      ISTHMUS_RETURN_IF_ERROR(writer.append(piece));
      advance(tensor, at, piece.size());
    }
    return ok_status();
  }

  /// The tensor's importance, or null when there is none.
  Result<const std::vector<float>*> importance_for(const GgufTensor& tensor) const {
    const std::vector<float>* none = nullptr;
    if (options_.importance == nullptr) return none;
    const auto at = options_.importance->find(tensor.name);
    if (at == options_.importance->end()) return none;
    const uint64_t matrices = tensor.dims[2] * tensor.dims[3];
    const uint64_t have = at->second.size();
    if (have == tensor.cols() || have == tensor.cols() * matrices) return &at->second;
    return invalid_argument(
        fmt::format("tensor {} has {} columns and {} matrices; an importance of {} values fits neither",
                    quote_untrusted(tensor.name), tensor.cols(), matrices, have));
  }

  /// Source bytes [offset, offset + bytes) of the tensor are done with.
  void advance(const GgufTensor& tensor, uint64_t offset, uint64_t bytes) {
    model_.release_pages(tensor, offset, bytes);
    progress_.bytes_done += bytes;
    if (options_.progress) options_.progress(progress_);
  }

  void finish(QuantizeReport& report, uint64_t bytes_written) const {
    report.bytes_from = model_.file_bytes();
    report.bytes_to = bytes_written;
    double bits = 0.0;
    double weights = 0.0;
    for (size_t i = 0; i < report.tensors.size(); ++i) {
      const auto& tensor = model_.tensors()[i];
      bits += 8.0 * static_cast<double>(report.tensors[i].decision.bytes_to);
      weights += static_cast<double>(tensor.cols()) * static_cast<double>(tensor.rows());
    }
    report.bits_per_weight = weights > 0.0 ? bits / weights : 0.0;
  }

  const GgufFile& model_;
  const QuantizeOptions& options_;
  QuantizeProgress progress_;
};

}  // namespace

Result<QuantizeReport> quantize_model(const GgufFile& model, FileSystem& files,
                                      const std::string& target_path, const QuantizeOptions& options) {
  if (options.threads == 0) return invalid_argument("at least one thread is needed");
  return ModelConverter(model, options).run(files, target_path);
}

}  // namespace isthmus
