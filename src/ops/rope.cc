#include "ops/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/float_kernels.h"
#include "kernels/generic/attention_kernels.h"

namespace isthmus {
namespace {

constexpr size_t kSteps = 256;        // positions of the low table
constexpr size_t kMaxDims = 1024;     // rotated values of one head
constexpr size_t kMaxHigh = 1 << 12;  // entries of the high table: positions up to 2^20 are fast

bool positive(double x) { return std::isfinite(x) && x > 0.0; }

Status check_factors(const RopeParams& p) {
  for (const float f : p.frequency_factors) {
    if (!positive(static_cast<double>(f))) {
      return invalid_argument(fmt::format("rope: a frequency factor is {}; it must be positive", f));
    }
  }
  if (!p.frequency_factors.empty() && p.frequency_factors.size() != p.dims / 2) {
    return invalid_argument(fmt::format("rope: {} frequency factors for {} rotated dimensions; {} are needed",
                                        p.frequency_factors.size(), p.dims, p.dims / 2));
  }
  return ok_status();
}

Status check(const RopeParams& p) {
  if (p.dims == 0 || p.dims % 2 != 0 || p.dims > kMaxDims) {
    return invalid_argument(
        fmt::format("rope: {} rotated dimensions; an even number up to {} is needed", p.dims, kMaxDims));
  }
  if (!positive(p.base)) return invalid_argument(fmt::format("rope: base {} is not positive", p.base));
  if (!positive(p.attention_factor)) {
    return invalid_argument(fmt::format("rope: attention factor {} is not positive", p.attention_factor));
  }
  ISTHMUS_RETURN_IF_ERROR(check_factors(p));
  if (p.scaling == RopeScaling::kNone) return ok_status();
  if (!positive(p.factor)) return invalid_argument(fmt::format("rope: factor {} is not positive", p.factor));
  if (p.scaling == RopeScaling::kLinear) return ok_status();
  if (p.original_context == 0)
    return invalid_argument("rope: this scaling needs the original context length");
  if (p.scaling == RopeScaling::kYarn) {
    if (!(p.base > 1.0))
      return invalid_argument(fmt::format("rope: YaRN needs a base above 1, not {}", p.base));
    if (!positive(p.yarn_beta_fast) || !positive(p.yarn_beta_slow) || !std::isfinite(p.yarn_ext_factor)) {
      return invalid_argument("rope: YaRN needs positive beta_fast and beta_slow and a finite ext_factor");
    }
    return ok_status();
  }
  if (!positive(p.low_freq_factor) || !(p.high_freq_factor > p.low_freq_factor)) {
    return invalid_argument(fmt::format("rope: frequency bands {} to {} are not ascending and positive",
                                        p.low_freq_factor, p.high_freq_factor));
  }
  return ok_status();
}

/// The pair index whose wavelength makes `rotations` turns in the original context (YaRN, section 3.2).
double yarn_correction(const RopeParams& p, double rotations) {
  const double turns = static_cast<double>(p.original_context) / (rotations * 2.0 * std::numbers::pi);
  return static_cast<double>(p.dims) * std::log(turns) / (2.0 * std::log(p.base));
}

/// YaRN's "NTK by parts": interpolated below, extrapolated above, a ramp between.
void scale_yarn(const RopeParams& p, std::span<double> frequencies) {
  const double low = std::max(0.0, std::floor(yarn_correction(p, p.yarn_beta_fast)));
  const double high =
      std::min(static_cast<double>(p.dims - 1), std::ceil(yarn_correction(p, p.yarn_beta_slow)));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    const double keep = (1.0 - std::clamp(ramp, 0.0, 1.0)) * p.yarn_ext_factor;
    frequencies[i] = frequencies[i] / p.factor * (1.0 - keep) + frequencies[i] * keep;
  }
}

/// Llama 3.1: long wavelengths divided by the factor, short ones kept, smooth between.
void scale_llama3(const RopeParams& p, std::span<double> frequencies) {
  const double context = static_cast<double>(p.original_context);
  for (double& f : frequencies) {
    const double turns = context * f / (2.0 * std::numbers::pi);  // context / wavelength
    const double smooth = (turns - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
    const double keep = std::clamp(smooth, 0.0, 1.0);
    f = (1.0 - keep) * f / p.factor + keep * f;
  }
}

std::vector<double> make_frequencies(const RopeParams& p) {
  std::vector<double> frequencies(p.dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(p.base, -2.0 * static_cast<double>(i) / static_cast<double>(p.dims));
    if (!p.frequency_factors.empty()) frequencies[i] /= static_cast<double>(p.frequency_factors[i]);
  }
  switch (p.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& f : frequencies) f /= p.factor;
      break;
    case RopeScaling::kYarn:
      scale_yarn(p, frequencies);
      break;
    case RopeScaling::kLlama3:
      scale_llama3(p, frequencies);
      break;
  }
  return frequencies;
}

/// cos and sin of position * frequency, times `magnitude`, for each pair.
void turn(std::span<const double> frequencies, double position, double magnitude, double* cosines,
          double* sines) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    cosines[i] = std::cos(position * frequencies[i]) * magnitude;
    sines[i] = std::sin(position * frequencies[i]) * magnitude;
  }
}

}  // namespace

Result<RopeTable> RopeTable::create(const RopeParams& params, size_t max_position) {
  ISTHMUS_RETURN_IF_ERROR(check(params));
  RopeTable table;
  table.dims_ = params.dims;
  table.style_ = params.style;
  table.magnitude_ = params.attention_factor;
  if (params.scaling == RopeScaling::kYarn && params.yarn_ext_factor != 0.0) {
    table.magnitude_ *= 1.0 + 0.1 * std::log(params.factor);
  }
  table.frequencies_ = make_frequencies(params);
  table.fill_tables(max_position);
  return table;
}

void RopeTable::fill_tables(size_t max_position) {
  const size_t pairs = dims_ / 2;
  low_.resize(kSteps * dims_);
  for (size_t p = 0; p < kSteps; ++p) {
    double* row = low_.data() + p * dims_;
    turn(frequencies_, static_cast<double>(p), magnitude_, row, row + pairs);
  }
  high_.resize(std::min(max_position / kSteps + 1, kMaxHigh) * dims_);
  for (size_t h = 0; h * dims_ < high_.size(); ++h) {
    double* row = high_.data() + h * dims_;
    turn(frequencies_, static_cast<double>(h * kSteps), 1.0, row, row + pairs);
  }
  block_cos_.resize(pairs * kBlockKeys);
  block_sin_.resize(pairs * kBlockKeys);
  for (size_t j = 0; j < kBlockKeys; ++j) {
    for (size_t i = 0; i < pairs; ++i) {
      block_cos_[i * kBlockKeys + j] = static_cast<float>(low_[j * dims_ + i]);
      block_sin_[i * kBlockKeys + j] = static_cast<float>(low_[j * dims_ + pairs + i]);
    }
  }
}

void RopeTable::row(int32_t position, float* out) const {
  const size_t pairs = dims_ / 2;
  const uint32_t distance =
      position < 0 ? 0u - static_cast<uint32_t>(position) : static_cast<uint32_t>(position);
  const double sign = position < 0 ? -1.0 : 1.0;
  const double* low = low_.data() + distance % kSteps * dims_;
  const size_t h = distance / kSteps;
  std::array<double, kMaxDims> computed;
  const double* high = high_.data() + h * dims_;
  if (h >= high_.size() / dims_) {
    turn(frequencies_, static_cast<double>(h * kSteps), 1.0, computed.data(), computed.data() + pairs);
    high = computed.data();
  }
  for (size_t i = 0; i < pairs; ++i) {
    const double cosine = low[i] * high[i] - low[pairs + i] * high[pairs + i];
    const double sine = low[pairs + i] * high[i] + low[i] * high[pairs + i];
    out[i] = static_cast<float>(cosine);
    out[pairs + i] = static_cast<float>(sign * sine);
  }
}

void RopeTable::rotate_by(const float* row, float* x, size_t heads, size_t head_dim) const {
  const FloatKernels& kernels = float_kernels();
  const auto rotate = style_ == RopeStyle::kHalf ? kernels.rotate_half : kernels.rotate_interleaved;
  for (size_t h = 0; h < heads; ++h) rotate(x + h * head_dim, row, row + dims_ / 2, dims_);
}

void RopeTable::rotate(int32_t position, float* x, size_t heads, size_t head_dim) const {
  std::array<float, kMaxDims> values;
  row(position, values.data());
  rotate_by(values.data(), x, heads, head_dim);
}

}  // namespace isthmus
