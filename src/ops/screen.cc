#include "ops/screen.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/checked.h"
#include "ops/aligned_bytes.h"
#include "ops/linear_streams.h"

namespace isthmus {
namespace {

constexpr size_t kFineCols = 64;
constexpr size_t kLeastCols = 128;
constexpr float kImpossible = -std::numeric_limits<float>::infinity();
/// Covers the rounding of the float64 sums and the last float steps of a bound many times over.
constexpr double kUp = 1 + 1e-5;
/// Covers products that underflow.
constexpr double kTiny = 1e-18;

/// A row and its estimate.
struct Estimate {
  float value;
  uint32_t row;
};

/// The products of one panel as linear() computes them.
void exact_panel(const PackedMatrix& w, size_t panel, const Activations& x, float* out) {
  alignas(64) float acc[kMaxTokens * kPanelRows] = {};
  const std::byte* at = w.data + panel * panel_bytes(w.format, w.cols);
  const size_t prefetch = stream_plan().prefetch_bytes;
  const auto format = static_cast<size_t>(w.format);
  if (is_quantised(w.format)) {
    const auto dot = x.kernels().dot[format][static_cast<size_t>(x.compute())][0];
    dot(at, panel_units(w.format, w.cols), x.record(0, 0, 0), x.tile_stride(0), acc, prefetch);
  } else {
    x.kernels().dot_float[format - kQuantFormats][0](at, w.cols, x.row(0), x.ldx(), acc, prefetch);
  }
  std::memcpy(out, acc, kPanelRows * sizeof(float));
}

bool all_finite(const float* x, size_t n) {
  bool finite = true;
  for (size_t i = 0; i < n; ++i) finite &= std::isfinite(x[i]);
  return finite;
}

}  // namespace

std::string Screen::refusal(PackFormat format, size_t rows, size_t cols) {
  if (is_quantised(format) && panel_layout(format).has_min) return "the matrix's type has minima";
  if (format == PackFormat::kF32) return "the matrix is in float32";
  if (cols < kLeastCols || cols > kScreenMostB) return "the matrix's rows are too short or too long";
  if (rows < 4096) return "the matrix has too few rows";
  if (rows > UINT32_MAX) return "the matrix has too many rows";
  return "";
}

size_t Screen::fine_cols(size_t cols) { return cols < 4 * kFineCols ? kBlockCols : kFineCols; }

ScreenOffsets screen_offsets(size_t rows, size_t cols) {
  const auto up = [](uint64_t n) { return round_up<uint64_t>(n, kVectorBytes); };
  const size_t a_blocks = Screen::fine_cols(cols) / kBlockCols;
  const size_t blocks = (cols + kBlockCols - 1) / kBlockCols;
  ScreenOffsets o{};
  o.column_scale = sizeof(ScreenHeader);
  o.weight = o.column_scale + up(cols * sizeof(float));
  o.rotation = o.weight + up(cols * sizeof(float));
  o.panels = o.rotation + panel_count(cols) * panel_bytes(PackFormat::kF32, cols);
  o.total = o.panels + panel_count(rows) * screen_panel_bytes(a_blocks, blocks - a_blocks);
  return o;
}

uint64_t Screen::bytes(size_t rows, size_t cols) { return screen_offsets(rows, cols).total; }

Result<Screen> Screen::view(const PackedMatrix& matrix, std::span<const std::byte> data) {
  if (const std::string why = refusal(matrix.format, matrix.rows, matrix.cols); !why.empty()) {
    return unsupported(why);
  }
  const ScreenOffsets o = screen_offsets(matrix.rows, matrix.cols);
  if (data.size() < o.total) return corrupt("the screen is too short");
  Screen out;
  out.matrix_ = matrix;
  out.header_ = reinterpret_cast<const ScreenHeader*>(data.data());
  const ScreenHeader& h = *out.header_;
  if (h.version != kScreenVersion || h.rows != matrix.rows || h.cols != matrix.cols ||
      h.a_cols != fine_cols(matrix.cols)) {
    return corrupt("the screen is of another matrix");
  }
  if (!(h.slack_a >= 0) || !(h.slack_b >= 0) || !(h.reach > 0)) {
    return corrupt("the screen's bounds are no numbers");
  }
  out.column_scale_ = reinterpret_cast<const float*>(data.data() + o.column_scale);
  out.weight_ = reinterpret_cast<const float*>(data.data() + o.weight);
  out.rotation_ = {PackFormat::kF32, matrix.cols, matrix.cols, data.data() + o.rotation};
  out.panels_ = data.data() + o.panels;
  out.panel_bytes_ = screen_panel_bytes(out.a_blocks(), out.b_blocks());
  return out;
}

struct ScreenScratch::Impl {
  struct PerThread {
    std::vector<float> rounded;     // the vector as the exact product sees it
    AlignedBytes records;           // of the rotated one
    std::vector<Estimate> best;     // of this thread's rows
    std::vector<Estimate> merged;   // of all threads' rows
    std::vector<uint32_t> panels;   // of the merged ones, ascending
    std::vector<uint32_t> touched;  // of this thread's panels, those in play
    std::vector<float> values;
  };
  std::vector<PerThread> threads;
  std::vector<float> rotated;  // [cols]
  std::vector<float> exact;    // [panels of the merged ones][16]
  ScreenOutcome outcome = ScreenOutcome::kExact;
  size_t touched = 0;
};

ScreenScratch::ScreenScratch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ScreenScratch::~ScreenScratch() = default;
ScreenOutcome ScreenScratch::outcome() const { return impl_->outcome; }
size_t ScreenScratch::touched_panels() const { return impl_->touched; }

Result<std::unique_ptr<ScreenScratch>> ScreenScratch::create(size_t rows, size_t cols, size_t threads) {
  auto impl = std::make_unique<Impl>();
  const size_t blocks = (cols + kBlockCols - 1) / kBlockCols;
  impl->threads.resize(threads);
  impl->rotated.resize(cols);
  impl->exact.resize(kScreenMostBest * kPanelRows);
  for (auto& t : impl->threads) {
    t.rounded.resize(cols);
    t.records = aligned_bytes(blocks * 256, kVectorBytes);
    if (t.records == nullptr) return resource_exhausted("no memory for the output head's scratch");
    t.best.reserve(kScreenMostBest + 1);
    t.merged.reserve(threads * kScreenMostBest);
    t.panels.reserve(kScreenMostBest);
    t.touched.reserve(panel_count(rows));
    t.values.reserve(kScreenMostBest * kPanelRows);
  }
  return std::unique_ptr<ScreenScratch>(new ScreenScratch(std::move(impl)));
}

/// One thread's part of screen_best().
class ScreenRun {
 public:
  ScreenRun(const Screen& screen, const Activations& x, size_t k, float* products, ScreenScratch& scratch,
            Worker& worker)
      : screen_(screen),
        w_(screen.matrix()),
        kernels_(screen_kernels_for(x.kernels().isa)),
        x_(x),
        k_(k),
        products_(products),
        shared_(*scratch.impl_),
        mine_(shared_.threads[worker.index()]),
        worker_(worker) {}

  void go() {
    if (!all_finite(x_.row(0), w_.cols)) return all_products();  // every thread sees the same
    rotate();
    worker_.barrier();
    if (!all_finite(shared_.rotated.data(), w_.cols)) return all_products();
    prepare();
    estimate_rows();
    worker_.barrier();
    merge();
    compute_best();
    worker_.barrier();
    const float threshold = find_threshold();
    collect(threshold);
    worker_.barrier();
    finish();
  }

 private:
  void rotate() {
    kernels_.round(x_.row(0), w_.cols, mine_.rounded.data());
    const float* row = is_quantised(w_.format) ? mine_.rounded.data() : x_.row(0);
    const Activations rounded(row, w_.cols, 1, w_.cols, Compute::kF32, nullptr, x_.kernels());
    const LinearTask task{&screen_.rotation(), shared_.rotated.data(), w_.cols};
    linear({&task, 1}, rounded, worker_);
  }

  /// Quantises columns [first, last) of the scaled vector with one scale; the norm of what that loses.
  double quantise(size_t first, size_t last, size_t block, float* scale, int64_t* sum) {
    const float* y = shared_.rotated.data();
    const float* c = screen_.column_scale();
    float most = 0;
    for (size_t j = first; j < last; ++j) most = std::max(most, std::fabs(y[j] * c[j]));
    *scale = std::max(most, 1e-30F) / 32512.0F;
    const float inverse = 1.0F / *scale;
    double lost = 0;
    *sum = 0;
    for (size_t at = first; at < last; at += kBlockCols, ++block) {
      int32_t q[kBlockCols] = {};
      for (size_t i = 0; i < kBlockCols && at + i < last; ++i) {
        const double value = static_cast<double>(y[at + i]) * static_cast<double>(c[at + i]);
        const auto rounded = static_cast<int32_t>(std::lrintf(static_cast<float>(value) * inverse));
        q[i] = std::clamp(rounded, -32512, 32512);
        const double error = value - static_cast<double>(*scale) * q[i];
        lost += error * error;
        *sum += q[i];
      }
      kernels_.record(q, mine_.records.get() + block * kernels_.record_bytes);
    }
    return std::sqrt(lost) * kUp;
  }

  void prepare() {
    const ScreenHeader& h = screen_.header();
    int64_t sum_a = 0;
    int64_t sum_b = 0;
    v_.records = mine_.records.get();
    v_.a_blocks = screen_.a_blocks();
    v_.b_blocks = screen_.b_blocks();
    const double lost_a = quantise(0, h.a_cols, 0, &v_.scale_a, &sum_a);
    const double lost_b = quantise(h.a_cols, w_.cols, v_.a_blocks, &v_.scale_b, &sum_b);
    v_.nsum_a = static_cast<int32_t>(-sum_a);
    v_.nsum_b = static_cast<int32_t>(-sum_b);
    v_.half_b = 0.5F * static_cast<float>(sum_b);
    double weighted = 0;
    double square = 0;
    const float* row = is_quantised(w_.format) ? mine_.rounded.data() : x_.row(0);
    for (size_t j = 0; j < w_.cols; ++j) {
      const double y = shared_.rotated[j];
      weighted += y * y * static_cast<double>(screen_.weight()[j]);
      square += static_cast<double>(row[j]) * static_cast<double>(row[j]);
    }
    const double spread =
        std::max(std::sqrt(weighted), std::sqrt(square) / static_cast<double>(h.reach)) * kUp;
    const double slack = lost_a * static_cast<double>(h.slack_a) + lost_b * static_cast<double>(h.slack_b);
    v_.spread = static_cast<float>(spread);
    v_.slack = static_cast<float>(slack * kUp + kTiny);
  }

  void note(const float* estimate, size_t first_row, size_t count) {
    float most = kImpossible;
    for (size_t r = 0; r < count; ++r) most = std::max(most, estimate[r]);
    if (!(most > least_)) return;
    for (size_t r = 0; r < count; ++r) {
      if (!(estimate[r] > least_)) continue;
      auto& best = mine_.best;
      const Estimate item{estimate[r], static_cast<uint32_t>(first_row + r)};
      const auto place =
          std::upper_bound(best.begin(), best.end(), item,
                           [](const Estimate& a, const Estimate& b) { return a.value > b.value; });
      best.insert(place, item);
      if (best.size() > k_) best.pop_back();
      if (best.size() == k_) least_ = best.back().value;
    }
  }

  /// Estimates of this thread's panels, their bounds to the products' place.
  void estimate_rows() {
    const auto [first, last] = worker_.range(panel_count(w_.rows));
    const size_t prefetch = stream_plan().prefetch_bytes;
    const size_t run = (last - first + kScreenStreams - 1) / kScreenStreams;
    alignas(64) float estimate[kScreenStreams * kPanelRows];
    alignas(64) float bound[kScreenStreams * kPanelRows];
    mine_.best.clear();
    least_ = kImpossible;
    for (size_t i = 0; i < run; ++i) {
      const std::byte* panels[kScreenStreams];
      for (size_t s = 0; s < kScreenStreams; ++s) {
        panels[s] = screen_.panel(std::min(first + s * run + i, last - 1));
      }
      kernels_.panels(panels, v_, estimate, bound, prefetch);
      for (size_t s = 0; s < kScreenStreams; ++s) {
        const size_t panel = first + s * run + i;
        if (panel >= last || i >= run) continue;
        const size_t count = std::min(kPanelRows, w_.rows - panel * kPanelRows);
        std::memcpy(products_ + panel * kPanelRows, bound + s * kPanelRows, count * sizeof(float));
        note(estimate + s * kPanelRows, panel * kPanelRows, count);
      }
    }
  }

  /// The panels of the k best estimates; every thread finds the same.
  void merge() {
    auto& all = mine_.merged;
    all.clear();
    for (const auto& t : shared_.threads) all.insert(all.end(), t.best.begin(), t.best.end());
    std::sort(all.begin(), all.end(), [](const Estimate& a, const Estimate& b) {
      return a.value != b.value ? a.value > b.value : a.row < b.row;
    });
    mine_.panels.clear();
    for (size_t i = 0; i < std::min(k_, all.size()); ++i) {
      mine_.panels.push_back(all[i].row / static_cast<uint32_t>(kPanelRows));
    }
    std::sort(mine_.panels.begin(), mine_.panels.end());
    mine_.panels.erase(std::unique(mine_.panels.begin(), mine_.panels.end()), mine_.panels.end());
  }

  void compute_best() {
    for (size_t i = worker_.index(); i < mine_.panels.size(); i += worker_.count()) {
      exact_panel(w_, mine_.panels[i], x_, shared_.exact.data() + i * kPanelRows);
    }
  }

  /// The k-th best product of the panels computed so far; -infinity when there are fewer or one is no number.
  float find_threshold() {
    auto& values = mine_.values;
    values.clear();
    for (size_t i = 0; i < mine_.panels.size(); ++i) {
      const size_t first = mine_.panels[i] * kPanelRows;
      const float* from = shared_.exact.data() + i * kPanelRows;
      values.insert(values.end(), from, from + std::min(kPanelRows, w_.rows - first));
    }
    if (values.size() < k_ || !all_finite(values.data(), values.size())) return kImpossible;
    const auto kth = values.begin() + static_cast<ptrdiff_t>(k_) - 1;
    std::nth_element(values.begin(), kth, values.end(), std::greater<>());
    return *kth;
  }

  /// Lists this thread's panels with a row that may reach the threshold, and those that the threshold is from
  /// (a forged screen may say that they cannot): k products are always there. The others' become -infinity.
  void collect(float threshold) {
    const auto [first, last] = worker_.range(panel_count(w_.rows));
    mine_.touched.clear();
    auto best = std::lower_bound(mine_.panels.begin(), mine_.panels.end(), first);
    for (size_t panel = first; panel < last; ++panel) {
      float* at = products_ + panel * kPanelRows;
      const size_t count = std::min(kPanelRows, w_.rows - panel * kPanelRows);
      bool in_play = best != mine_.panels.end() && *best == panel;
      if (in_play) ++best;
      for (size_t r = 0; r < count; ++r) in_play |= !(at[r] < threshold);
      if (in_play) {
        mine_.touched.push_back(static_cast<uint32_t>(panel));
      } else {
        std::fill_n(at, count, kImpossible);
      }
    }
  }

  void finish() {
    size_t touched = 0;
    for (const auto& t : shared_.threads) touched += t.touched.size();
    const auto limit = static_cast<size_t>(kScreenMostTouched * static_cast<double>(panel_count(w_.rows)));
    if (touched > std::max<size_t>(limit, kScreenMostBest)) return all_products();
    if (worker_.index() == 0) {
      shared_.outcome = ScreenOutcome::kExact;
      shared_.touched = touched;
    }
    size_t i = 0;
    for (const auto& t : shared_.threads) {
      for (const uint32_t panel : t.touched) {
        if (i++ % worker_.count() != worker_.index()) continue;
        float exact[kPanelRows];
        exact_panel(w_, panel, x_, exact);
        const size_t count = std::min(kPanelRows, w_.rows - panel * kPanelRows);
        std::memcpy(products_ + panel * kPanelRows, exact, count * sizeof(float));
      }
    }
  }

  void all_products() {
    if (worker_.index() == 0) {
      shared_.outcome = ScreenOutcome::kFull;
      shared_.touched = panel_count(w_.rows);
    }
    const LinearTask task{&w_, products_, w_.rows};
    linear({&task, 1}, x_, worker_);
  }

  const Screen& screen_;
  const PackedMatrix& w_;
  const ScreenKernels& kernels_;
  const Activations& x_;
  const size_t k_;
  float* products_;
  ScreenScratch::Impl& shared_;
  ScreenScratch::Impl::PerThread& mine_;
  Worker& worker_;
  ScreenVector v_{};
  float least_ = kImpossible;
};

void screen_best(const Screen& screen, const Activations& x, size_t k, float* products,
                 ScreenScratch& scratch, Worker& worker) {
  ScreenRun(screen, x, k, products, scratch, worker).go();
}

}  // namespace isthmus
