#include "ops/screen_build.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "ops/eigen.h"

namespace isthmus {
namespace {

constexpr size_t kBatchRows = 256;    // rows rotated at a time
constexpr size_t kSampleRows = 4096;  // that the column scales are taken from
/// Part of the mean energy that every direction is given: fewer vectors than would be needed were seen.
constexpr double kRidge = 0.02;
constexpr double kUlp = 0x1p-24;
constexpr double kBarelyUp = 1 + 1e-6;

/// Rounded up.
float above(double value) {
  const auto nearest = static_cast<float>(value * kBarelyUp);
  return std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

/// Codes of one group of a row, in units of the columns' scales.
struct GroupCodes {
  float scale = 0;  // of the row
  double norm = 0;  // of code values times the scale
};

/// One row in the basis, to be coded.
class RowCoder {
 public:
  RowCoder(size_t cols, size_t fine, const float* column_scale)
      : cols_(cols), fine_(fine), column_scale_(column_scale), z_(cols), codes_(cols) {}

  /// `v` is the row in the basis.
  void code(const float* v) {
    for (size_t j = 0; j < cols_; ++j) z_[j] = v[j] / column_scale_[j];
    a_ = fine_codes();
    b_ = coarse_codes();
  }
  /// What the codes stand for, column j.
  double value(size_t j) const {
    const bool fine = j < fine_;
    const double code = static_cast<double>(codes_[j]) - (fine ? 128.0 : 3.5);
    return code * static_cast<double>(fine ? a_.scale : b_.scale) * static_cast<double>(column_scale_[j]);
  }
  const GroupCodes& a() const { return a_; }
  const GroupCodes& b() const { return b_; }
  const uint8_t* codes() const { return codes_.data(); }

 private:
  GroupCodes fine_codes() {
    float most = 0;
    for (size_t j = 0; j < fine_; ++j) most = std::max(most, std::fabs(z_[j]));
    GroupCodes out;
    out.scale = std::isfinite(most) ? most / 127.0F : 0.0F;
    const float inverse = out.scale > 0 ? 1.0F / out.scale : 0.0F;
    double square = 0;
    for (size_t j = 0; j < fine_; ++j) {
      const float code =
          std::isfinite(inverse) ? std::clamp(std::nearbyint(z_[j] * inverse), -127.0F, 127.0F) : 0;
      codes_[j] = static_cast<uint8_t>(code + 128.0F);
      square += static_cast<double>(code) * static_cast<double>(code);
    }
    out.norm = std::sqrt(square) * static_cast<double>(out.scale);
    return out;
  }

  static float level(float x) { return std::clamp(std::floor(x), -4.0F, 3.0F) + 0.5F; }

  /// The step starts at what is best for normal values and is refined by least squares twice.
  GroupCodes coarse_codes() {
    const size_t n = cols_ - fine_;
    const float* z = z_.data() + fine_;
    float square = 0;
    for (size_t j = 0; j < n; ++j) square += z[j] * z[j];
    float step = 0.586F * std::sqrt(square / static_cast<float>(n));
    for (int pass = 0; pass < 2 && step > 1e-30F && std::isfinite(step); ++pass) {
      const float inverse = 1.0F / step;
      float product = 0;
      float levels = 0;
      for (size_t j = 0; j < n; ++j) {
        const float l = level(z[j] * inverse);
        product += z[j] * l;
        levels += l * l;
      }
      step = product / levels;
    }
    GroupCodes out;
    out.scale = step > 1e-30F && std::isfinite(step) ? step : 0.0F;
    const float inverse = out.scale > 0 ? 1.0F / out.scale : 0.0F;
    double codes = 0;
    for (size_t j = 0; j < n; ++j) {
      const float l = level(z[j] * inverse);
      codes_[fine_ + j] = static_cast<uint8_t>(l + 3.5F);
      codes += static_cast<double>(l) * static_cast<double>(l);
    }
    out.norm = std::sqrt(codes) * static_cast<double>(out.scale);
    return out;
  }

  const size_t cols_;
  const size_t fine_;
  const float* column_scale_;
  std::vector<float> z_;
  std::vector<uint8_t> codes_;
  GroupCodes a_, b_;
};

void put(std::byte* at, uint8_t bits) { *at |= std::byte{bits}; }

/// Writes row `row` of a zeroed screen panel.
void write_row(const RowCoder& coder, size_t cols, size_t fine, float spread, size_t row, std::byte* panel) {
  const float head[3] = {coder.a().scale, coder.b().scale, spread};
  for (size_t i = 0; i < 3; ++i) {
    std::memcpy(panel + (i * kPanelRows + row) * sizeof(float), &head[i], sizeof(float));
  }
  std::byte* a = panel + kScreenHeadBytes;
  std::byte* b = a + fine / kBlockCols * kScreenA.block_bytes();
  for (size_t j = 0; j < cols; ++j) {
    const uint8_t code = coder.codes()[j];
    const size_t in_group = j < fine ? j : j - fine;
    const size_t group = in_group % kBlockCols / 4;
    const size_t place = row * 4 + in_group % 4;
    if (j < fine) {
      put(a + in_group / kBlockCols * kScreenA.block_bytes() + group * kVectorBytes + place, code);
      continue;
    }
    std::byte* block = b + in_group / kBlockCols * kScreenB.block_bytes();
    put(block + group % 2 * kVectorBytes + place, static_cast<uint8_t>((code & 3) << (2 * (group / 2))));
    put(block + 2 * kVectorBytes + place, static_cast<uint8_t>((code >> 2) << group));
  }
}

/// The parts of the bound that do not depend on the vector.
double rounding_share(const PackedMatrix& w, double defect) {
  const auto n = static_cast<double>(w.cols);
  // The exact product's chain: conversion, scale and addition of each group of 16; or one step per column.
  const double chain = is_quantised(w.format) ? 2 * (n / 16 + 8) : n + 8;
  // Both rotations: every coordinate is a chain of n steps.
  const double rotations = 2 * n * std::sqrt(n) * 1.01;
  // The rows' and the vector's values as floats, and the estimate's own steps.
  return 1.05 * (kUlp * (chain + rotations + 4 + 32) + defect);
}

class Builder {
 public:
  Builder(const PackedMatrix& matrix, const ScreenBasis& basis, ThreadPool& pool, const StopPolicy& stop,
          std::span<std::byte> out)
      : w_(matrix),
        basis_(basis),
        pool_(pool),
        stop_(stop),
        out_(out.data()),
        offsets_(screen_offsets(matrix.rows, matrix.cols)),
        fine_(Screen::fine_cols(matrix.cols)),
        column_scale_(reinterpret_cast<float*>(out_ + offsets_.column_scale)),
        weight_(reinterpret_cast<float*>(out_ + offsets_.weight)),
        rows_(kBatchRows * matrix.cols),
        rotated_(kBatchRows * matrix.cols) {}

  Status build() {
    std::memset(out_, 0, offsets_.total);
    ISTHMUS_RETURN_IF_ERROR(pack_rotation());
    ISTHMUS_RETURN_IF_ERROR(choose_scales());
    choose_reach();
    for (size_t first = 0; first < w_.rows; first += kBatchRows) {
      ISTHMUS_RETURN_IF_ERROR(stop_.check());
      code_batch(first, std::min(kBatchRows, w_.rows - first));
    }
    ScreenHeader header{};
    header.version = kScreenVersion;
    header.a_cols = static_cast<uint32_t>(fine_);
    header.rows = w_.rows;
    header.cols = w_.cols;
    header.slack_a = above(most_a_);
    header.slack_b = above(most_b_);
    header.reach = reach_;
    std::memcpy(out_, &header, sizeof(header));
    return ok_status();
  }

 private:
  Status pack_rotation() {
    const auto* rows = reinterpret_cast<const std::byte*>(basis_.directions.data());
    rotation_ = {PackFormat::kF32, w_.cols, w_.cols, out_ + offsets_.rotation};
    return pack_panels(DType::kF32, rows, w_.cols, w_.cols, Compute::kInt16, 0, panel_count(w_.cols),
                       out_ + offsets_.rotation);
  }

  /// rotated_[n] = the rows picked by row_of(i) in the basis; `then` runs on every thread behind it.
  template <class RowOf, class Then>
  void rotate(size_t n, const RowOf& row_of, const Then& then) {
    const Activations x(rows_.data(), w_.cols, n, w_.cols, Compute::kF32, nullptr);
    pool_.run([&](Worker& worker) {
      const auto [first, last] = worker.range(n);
      for (size_t i = first; i < last; ++i) unpack_row(w_, row_of(i), rows_.data() + i * w_.cols);
      worker.barrier();
      const LinearTask task{&rotation_, rotated_.data(), w_.cols};
      linear({&task, 1}, x, worker);
      worker.barrier();
      then(worker);
    });
  }

  /// Column scales from the columns' mean squares over a sample of rows; weights from what its codes lose.
  Status choose_scales() {
    const size_t n = std::min(kSampleRows, w_.rows);
    std::vector<double> square(w_.cols, 0.0);
    std::vector<float> sample(n * w_.cols);
    for (size_t first = 0; first < n; first += kBatchRows) {
      ISTHMUS_RETURN_IF_ERROR(stop_.check());
      const size_t count = std::min(kBatchRows, n - first);
      rotate(
          count, [&](size_t i) { return (first + i) * (w_.rows / n); }, [](Worker&) {});
      std::copy_n(rotated_.begin(), count * w_.cols,
                  sample.begin() + static_cast<ptrdiff_t>(first * w_.cols));
    }
    size_t used = 0;
    for (size_t i = 0; i < n; ++i) {
      const float* row = sample.data() + i * w_.cols;
      if (!std::all_of(row, row + w_.cols, [](float v) { return std::isfinite(v); })) continue;
      ++used;
      for (size_t j = 0; j < w_.cols; ++j)
        square[j] += static_cast<double>(row[j]) * static_cast<double>(row[j]);
    }
    const double most = *std::max_element(square.begin(), square.end());
    for (size_t j = 0; j < w_.cols; ++j) {
      const double mean = std::max(square[j], most * 1e-12) / std::max<double>(1, static_cast<double>(used));
      column_scale_[j] = static_cast<float>(std::max(std::sqrt(mean), 1e-20));
    }
    choose_weights(sample, n);
    return ok_status();
  }

  void choose_weights(const std::vector<float>& sample, size_t n) {
    std::vector<double> lost(w_.cols, 0.0);
    RowCoder coder(w_.cols, fine_, column_scale_);
    for (size_t i = 0; i < n; ++i) {
      const float* row = sample.data() + i * w_.cols;
      coder.code(row);
      for (size_t j = 0; j < w_.cols; ++j) {
        const double error = static_cast<double>(row[j]) - coder.value(j);
        if (std::isfinite(error)) lost[j] += error * error;
      }
    }
    double mean = 0;
    for (const double value : lost) mean += value / static_cast<double>(w_.cols);
    for (size_t j = 0; j < w_.cols; ++j) {
      const double error = std::max(lost[j], mean * 1e-6 + 1e-30) / static_cast<double>(n);
      const double m = std::sqrt(static_cast<double>(basis_.energy[j]) / error);
      weight_[j] = static_cast<float>(std::clamp(1 / m, 1e-12, 1e12));
    }
  }

  /// The spread of a usual vector against its norm.
  void choose_reach() {
    double weighted = 0;
    double square = 0;
    for (size_t j = 0; j < w_.cols; ++j) {
      weighted += static_cast<double>(basis_.energy[j]) * static_cast<double>(weight_[j]);
      square += static_cast<double>(basis_.energy[j]);
    }
    reach_ = static_cast<float>(2 * std::sqrt(square / weighted));
    rounding_ = rounding_share(w_, basis_.defect);
  }

  void code_batch(size_t first, size_t count) {
    const size_t panel_bytes =
        screen_panel_bytes(fine_ / kBlockCols, (w_.cols + kBlockCols - 1) / kBlockCols - fine_ / kBlockCols);
    rotate(
        count, [&](size_t i) { return first + i; },
        [&](Worker& worker) {
          RowCoder coder(w_.cols, fine_, column_scale_);
          double most_a = 0;
          double most_b = 0;
          const auto [begin, end] = worker.range(count, kPanelRows);
          for (size_t i = begin; i < end; ++i) {
            coder.code(rotated_.data() + i * w_.cols);
            const size_t row = first + i;
            write_row(coder, w_.cols, fine_, spread_of(coder, i), row % kPanelRows,
                      out_ + offsets_.panels + row / kPanelRows * panel_bytes);
            most_a = std::max(most_a, coder.a().norm);
            most_b = std::max(most_b, coder.b().norm);
          }
          const std::lock_guard<std::mutex> lock(mutex_);
          most_a_ = std::max(most_a_, most_a);
          most_b_ = std::max(most_b_, most_b);
        });
  }

  /// The row's factor of the bound: the weighted norm of what the codes lose, and the rounding of floats.
  float spread_of(const RowCoder& coder, size_t i) const {
    const float* original = rows_.data() + i * w_.cols;
    const float* row = rotated_.data() + i * w_.cols;
    double lost = 0;
    double square = 0;
    for (size_t j = 0; j < w_.cols; ++j) {
      const double error = static_cast<double>(row[j]) - coder.value(j);
      lost += error * error / static_cast<double>(weight_[j]);
      square += static_cast<double>(original[j]) * static_cast<double>(original[j]);
    }
    const double spread = std::sqrt(lost) + rounding_ * std::sqrt(square) * static_cast<double>(reach_);
    return std::isfinite(spread) ? above(spread) : std::numeric_limits<float>::infinity();
  }

  const PackedMatrix& w_;
  const ScreenBasis& basis_;
  ThreadPool& pool_;
  const StopPolicy& stop_;
  std::byte* out_;
  const ScreenOffsets offsets_;
  const size_t fine_;
  float* column_scale_;
  float* weight_;
  std::vector<float> rows_;
  std::vector<float> rotated_;
  PackedMatrix rotation_{};
  float reach_ = 0;
  double rounding_ = 0;
  std::mutex mutex_;
  double most_a_ = 0;
  double most_b_ = 0;
};

}  // namespace

void ScreenMoments::add(const float* rows, size_t n) {
  for (size_t i = 0; i < n; ++i, rows += cols_) {
    if (!std::all_of(rows, rows + cols_, [](float v) { return std::isfinite(v); })) continue;
    ++count_;
    for (size_t r = 0; r < cols_; ++r) {
      const float factor = rows[r];
      float* sum = sum_.data() + r * cols_;
      for (size_t c = 0; c <= r; ++c) sum[c] += factor * rows[c];
    }
  }
}

std::vector<double> ScreenMoments::mean() const {
  std::vector<double> out(cols_ * cols_);
  const double share = 1.0 / static_cast<double>(std::max<size_t>(1, count_));
  for (size_t r = 0; r < cols_; ++r) {
    for (size_t c = 0; c <= r; ++c) {
      out[r * cols_ + c] = out[c * cols_ + r] = static_cast<double>(sum_[r * cols_ + c]) * share;
    }
  }
  return out;
}

Result<ScreenBasis> screen_basis(const ScreenMoments& moments, const StopPolicy& stop) {
  const size_t n = moments.cols();
  ISTHMUS_ASSIGN_OR_RETURN(const Eigen eigen, symmetric_eigen(moments.mean(), n, stop));
  ScreenBasis out;
  out.directions.assign(eigen.vectors.begin(), eigen.vectors.end());
  double mean = 0;
  for (const double value : eigen.values) mean += std::max(0.0, value) / static_cast<double>(n);
  for (const double value : eigen.values) {
    out.energy.push_back(static_cast<float>(std::max(0.0, value) + kRidge * mean + 1e-20));
  }
  double defect = 0;
  for (size_t r = 0; r < n; ++r) {
    const float* a = out.directions.data() + r * n;
    for (size_t c = 0; c <= r; ++c) {
      const float* b = out.directions.data() + c * n;
      double dot = 0;
      for (size_t i = 0; i < n; ++i) dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      const double error = dot - (r == c ? 1 : 0);
      defect += (r == c ? 1 : 2) * error * error;
    }
  }
  out.defect = std::sqrt(defect);
  return out;
}

Status build_screen(const PackedMatrix& matrix, const ScreenBasis& basis, ThreadPool& pool,
                    const StopPolicy& stop, std::span<std::byte> out) {
  if (const std::string why = Screen::refusal(matrix.format, matrix.rows, matrix.cols); !why.empty()) {
    return unsupported(why);
  }
  if (basis.energy.size() != matrix.cols || basis.directions.size() != matrix.cols * matrix.cols ||
      out.size() < Screen::bytes(matrix.rows, matrix.cols)) {
    return invalid_argument("the basis or the place for the screen does not fit the matrix");
  }
  return Builder(matrix, basis, pool, stop, out).build();
}

}  // namespace isthmus
