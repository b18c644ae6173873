// Speed of the matrix kernels by weight type: GB/s of packed weights for one token, GMAC/s for many, and the
// share of what the machine can do at most (ops/machine_limits.h), measured in the same run: of reading
// memory for one token, of multiplying from registers for more.
//
//   linear_bench --benchmark_filter='Gemv|Gemm' [--benchmark_min_time=0.2]
//
// Pack/<type> is the speed of packing on one thread, in GB/s of the file's bytes; PackClear/<type> the
// version that the tests compare it with. Names: Gemv/<type>/<compute bits>/<rows>x<cols>/threads:<n>.
// Weights of the Gemv cases are larger than the caches.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/linear.h"
#include "ops/linear_codes.h"
#include "ops/linear_streams.h"
#include "ops/machine_limits.h"
#include "os/mmap.h"

namespace isthmus {
namespace {

constexpr DType kTypes[] = {DType::kQ4_0,  DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                            DType::kQ8_0,  DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                            DType::kQ5_K,  DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
                            DType::kMXFP4, DType::kF32,  DType::kF16,    DType::kBF16};

struct Weights {
  Weights(DType type, size_t rows, size_t cols, Compute compute)
      : bytes(packed_bytes(type, rows, cols, compute).value()), arena(HugeArena::allocate(bytes).value()) {
    std::mt19937 rng(1);
    const size_t unit = row_bytes(type, cols).value() * kPanelRows;
    std::vector<std::byte> rows16(unit);
    for (auto& b : rows16) b = static_cast<std::byte>(rng() % 60);  // small scales, no NaN
    for (size_t panel = 0; panel < panel_count(rows); ++panel) {
      if (!pack_panels(type, rows16.data(), rows, cols, compute, panel, panel + 1, arena.data()).ok())
        std::abort();
    }
    matrix = {pack_format(type, compute).value(), rows, cols, arena.data()};
  }
  size_t bytes;
  HugeArena arena;
  PackedMatrix matrix{};
};

/// 1e9 multiply-adds per second of a thread at most, measured at the first call.
double peak(Compute compute) {
  static const double peaks[] = {peak_gmacs(Compute::kInt8), peak_gmacs(Compute::kInt16),
                                 peak_gmacs(Compute::kF32)};
  return peaks[static_cast<size_t>(compute)];
}

/// GB/s of reading memory with so many threads at most, measured at the first call; 0 when it cannot be.
double read_limit(size_t threads) {
  static std::map<size_t, double> limits;
  const auto known = limits.find(threads);
  if (known != limits.end()) return known->second;
  const auto probe = BandwidthProbe::create();
  const auto limit = probe.ok() ? probe->limit(threads) : Result<double>(probe.status());
  return limits[threads] = limit.ok() ? *limit : 0;
}

/// How near to the limit: of memory for one token, of the multiplications for more.
double limit_of(size_t tokens, size_t threads, double bytes, double macs, Compute compute) {
  return tokens == 1 ? bytes / read_limit(threads) : macs / (peak(compute) * static_cast<double>(threads));
}

void run(benchmark::State& state, DType type, Compute compute, size_t rows, size_t cols, size_t tokens,
         size_t threads) {
  const Weights weights(type, rows, cols, compute);
  ThreadPool pool(threads);
  std::vector<float> x(tokens * cols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0f;
  std::vector<float> y(tokens * rows);
  auto memory = HugeArena::allocate(Activations::bytes(tokens, cols, compute) + 64).value();
  const Activations acts(x.data(), cols, tokens, cols, compute, memory.data());
  quantize_activations(acts, 0, tokens);
  const LinearTask task{&weights.matrix, y.data(), rows};
  for (auto _ : state) {
    pool.run([&](Worker& worker) { linear({&task, 1}, acts, worker); });
    benchmark::DoNotOptimize(y.data());
  }
  const auto count = static_cast<double>(state.iterations());
  const bool plain = !is_quantised(weights.matrix.format);
  const double share =
      limit_of(tokens, threads, static_cast<double>(weights.bytes) * 1e-9,
               static_cast<double>(rows * cols * tokens) * 1e-9, plain ? Compute::kF32 : compute);
  state.counters["of limit, %"] = benchmark::Counter(100 * count * share, benchmark::Counter::kIsRate);
  state.counters["GB/s"] =
      benchmark::Counter(count * static_cast<double>(weights.bytes) * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GMAC/s"] = benchmark::Counter(count * static_cast<double>(rows * cols * tokens) * 1e-9,
                                                benchmark::Counter::kIsRate);
}

void quantise(benchmark::State& state, Compute compute) {
  const size_t cols = 1536;
  const std::vector<float> x(cols, 0.5f);
  auto memory = HugeArena::allocate(Activations::bytes(1, cols, compute)).value();
  const Activations acts(x.data(), cols, 1, cols, compute, memory.data());
  for (auto _ : state) quantize_activations(acts, 0, 1);
  state.counters["values/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * cols), benchmark::Counter::kIsRate);
}

/// 64 MB of the file, more than the caches hold, from memory to memory.
void pack_rows(benchmark::State& state, DType type, bool clear) {
  const size_t cols = 1536;
  const size_t stride = row_bytes(type, cols).value();
  const size_t rows = (size_t{64} << 20) / stride / kPanelRows * kPanelRows;
  std::vector<std::byte> src(rows * stride);
  std::mt19937 rng(1);
  for (auto& b : src) b = static_cast<std::byte>(rng());
  HugeArena arena = HugeArena::allocate(packed_bytes(type, rows, cols, Compute::kInt16).value()).value();
  std::memset(arena.data(), 1, arena.size());  // pages are there
  const PackFormat format = pack_format(type, Compute::kInt16).value();
  for (auto _ : state) {
    if (!clear) {
      if (!pack_panels(type, src.data(), rows, cols, Compute::kInt16, 0, panel_count(rows), arena.data())
               .ok())
        std::abort();
      continue;
    }
    for (size_t panel = 0; panel < panel_count(rows); ++panel) {
      packing::pack_units(format, src.data() + panel * kPanelRows * stride, stride, kPanelRows, cols, 0,
                          arena.data() + panel * panel_bytes(format, cols));
    }
  }
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(src.size()) * 1e-9,
                         benchmark::Counter::kIsRate);
}

void add_pack() {
  for (const DType type : kTypes) {
    const std::string name(dtype_info(type).name);
    benchmark::RegisterBenchmark(("Pack/" + name).c_str(),
                                 [=](benchmark::State& state) { pack_rows(state, type, false); });
    if (!is_quantised(pack_format(type, Compute::kInt16).value())) continue;
    benchmark::RegisterBenchmark(("PackClear/" + name).c_str(),
                                 [=](benchmark::State& state) { pack_rows(state, type, true); });
  }
}

void add_all() {
  add_pack();
  for (const size_t threads : {1, 2}) {
    for (const DType type : kTypes) {
      for (const Compute compute : {Compute::kInt16, Compute::kInt8}) {
        const std::string tail = std::string(dtype_info(type).name) + "/" +
                                 (compute == Compute::kInt16 ? "16" : "8") + "/t" + std::to_string(threads);
        benchmark::RegisterBenchmark(("Gemv/" + tail).c_str(), [=](benchmark::State& state) {
          run(state, type, compute, 65536, 1536, 1, threads);
        })->UseRealTime();
        for (const size_t tokens : {4, 32, 512}) {
          benchmark::RegisterBenchmark(
              ("Gemm/" + tail + "/n" + std::to_string(tokens)).c_str(),
              [=](benchmark::State& state) { run(state, type, compute, 1536, 1536, tokens, threads); })
              ->UseRealTime();
        }
        benchmark::RegisterBenchmark(("Gemm/" + tail + "/wide").c_str(), [=](benchmark::State& state) {
          run(state, type, compute, 1536, 8960, 512, threads);
        })->UseRealTime();
      }
    }
  }
  benchmark::RegisterBenchmark("Quantise/16", [](benchmark::State& s) { quantise(s, Compute::kInt16); });
  benchmark::RegisterBenchmark("Quantise/8", [](benchmark::State& s) { quantise(s, Compute::kInt8); });
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  isthmus::add_all();
  benchmark::Initialize(&argc, argv);
  {
    isthmus::ThreadPool pool(1);
    const auto plan = isthmus::measure_streams(pool);
    if (plan.ok()) isthmus::set_stream_plan(plan.value());
    benchmark::AddCustomContext("streams", std::to_string(isthmus::stream_plan().panels));
    benchmark::AddCustomContext("prefetch", std::to_string(isthmus::stream_plan().prefetch_bytes));
  }
  benchmark::RunSpecifiedBenchmarks();
}
