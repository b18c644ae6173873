#include "ops/kernel_check.h"

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/float_kernels.h"
#include "kernels/linear_kernels.h"
#include "ops/aligned_bytes.h"
#include "ops/linear.h"
#include "tensor/dtype.h"
#include "tensor/quantize.h"
#include "threads/pool.h"

namespace isthmus {
namespace {

constexpr size_t kCheckRows = 40;  // two whole panels and a part of a third
constexpr size_t kCols = 512;      // two super-blocks
constexpr size_t kTokens = 27;     // a strip of 16 and part of another

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,
                            DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                            DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                            DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

AlignedBytes make_buffer(size_t bytes) { return aligned_bytes(bytes + 64, 64); }

std::vector<float> random_floats(size_t n, Rng& rng) {
  std::vector<float> out(n);
  for (float& value : out) value = static_cast<float>(rng.uniform() * 4 - 2);
  return out;
}

/// A packed random matrix of `type`; empty data when it cannot be made, which the caller reports.
struct TestMatrix {
  AlignedBytes data;
  PackedMatrix view{};
};

TestMatrix make_matrix(DType type, Rng& rng) {
  TestMatrix out;
  const auto row = row_bytes(type, kCols);
  const auto bytes = packed_bytes(type, kCheckRows, kCols, Compute::kInt16);
  const auto format = pack_format(type, Compute::kInt16);
  if (!row || !bytes.ok() || !format.ok()) return out;
  std::vector<std::byte> source(*row * kCheckRows);
  for (size_t r = 0; r < kCheckRows; ++r) {
    const auto values = random_floats(kCols, rng);
    if (!quantize_row(type, values.data(), kCols, nullptr, source.data() + r * *row).ok()) return out;
  }
  AlignedBytes data = make_buffer(*bytes);
  const size_t panels = (kCheckRows + kPanelRows - 1) / kPanelRows;
  if (!pack_panels(type, source.data(), kCheckRows, kCols, Compute::kInt16, 0, panels, data.get()).ok())
    return out;
  out.view = PackedMatrix{*format, kCheckRows, kCols, data.get()};
  out.data = std::move(data);
  return out;
}

std::vector<float> product(const TestMatrix& matrix, const std::vector<float>& x, size_t tokens,
                           Compute compute, Isa isa, ThreadPool& pool) {
  const LinearKernels& kernels = linear_kernels_for(isa);
  const AlignedBytes memory = make_buffer(Activations::bytes(tokens, kCols, compute, kernels));
  const Activations acts(x.data(), kCols, tokens, kCols, compute, memory.get(), kernels);
  quantize_activations(acts, 0, tokens);
  std::vector<float> y(tokens * kCheckRows);
  const LinearTask task{&matrix.view, y.data(), kCheckRows};
  pool.run([&](Worker& worker) { linear({&task, 1}, acts, worker); });
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Class `fast`, which scalar does not have: the processor's tiles against their model.
void check_bf16(SelfTestResult& result, ThreadPool& pool) {
  if (!have_bf16(linear_kernels_for(result.isa))) return;
  Rng rng(20260103);
  for (const DType type : kTypes) {
    const TestMatrix matrix = make_matrix(type, rng);
    if (matrix.data == nullptr) continue;  // check_products() has said so
    const auto x = random_floats(kTokens * kCols, rng);
    ++result.checks;
    if (!same_bits(product(matrix, x, kTokens, Compute::kBf16, Isa::kAmxModel, pool),
                   product(matrix, x, kTokens, Compute::kBf16, result.isa, pool))) {
      result.failures.push_back(std::string(dtype_info(type).name) + ", bfloat16 tiles");
    }
  }
}

void check_products(SelfTestResult& result, ThreadPool& pool) {
  Rng rng(20260101);
  for (const DType type : kTypes) {
    const std::string name(dtype_info(type).name);
    const TestMatrix matrix = make_matrix(type, rng);
    if (matrix.data == nullptr) {
      result.failures.push_back(name + ": cannot be packed");
      continue;
    }
    const auto x = random_floats(kTokens * kCols, rng);
    for (const Compute compute : {Compute::kInt8, Compute::kInt16}) {
      for (const size_t tokens : {size_t{1}, size_t{3}, kTokens}) {
        ++result.checks;
        if (same_bits(product(matrix, x, tokens, compute, Isa::kScalar, pool),
                      product(matrix, x, tokens, compute, result.isa, pool))) {
          continue;
        }
        result.failures.push_back(name + ", " + std::to_string(tokens) + " tokens, " +
                                  (compute == Compute::kInt8 ? "8" : "16") + "-bit activations");
      }
    }
  }
}

void check_floats(SelfTestResult& result) {
  Rng rng(20260102);
  const size_t n = 1003;
  const auto x = random_floats(n, rng);
  const auto w = random_floats(n, rng);
  const FloatKernels& expected = float_kernels_for(Isa::kScalar);
  const FloatKernels& got = float_kernels_for(result.isa);
  const auto compare = [&](const char* name, const auto& run) {
    std::vector<float> a(n);
    std::vector<float> b(n);
    run(expected, a.data());
    run(got, b.data());
    ++result.checks;
    if (!same_bits(a, b)) result.failures.emplace_back(name);
  };
  compare("RMSNorm",
          [&](const FloatKernels& k, float* out) { k.rms_norm(x.data(), w.data(), n, 1e-6F, out); });
  compare("exp", [&](const FloatKernels& k, float* out) { k.exp(x.data(), n, out); });
  compare("SiLU gate",
          [&](const FloatKernels& k, float* out) { k.gate_mul(Gate::kSilu, x.data(), w.data(), out, n); });
  compare("GELU gate", [&](const FloatKernels& k, float* out) {
    k.gate_mul(Gate::kGeluTanh, x.data(), w.data(), out, n);
  });
  compare("sum of exp",
          [&](const FloatKernels& k, float* out) { out[0] = static_cast<float>(k.sum_exp(x.data(), n, 0)); });
}

}  // namespace

std::vector<SelfTestResult> self_test_kernels() {
  std::vector<SelfTestResult> out;
  ThreadPool pool(1);
  for (const Isa isa : available_isas()) {
    if (isa == Isa::kScalar) continue;
    SelfTestResult result;
    result.isa = isa;
    check_products(result, pool);
    check_bf16(result, pool);
    check_floats(result);
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace isthmus
