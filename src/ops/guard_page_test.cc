// No kernel loads or stores outside of its buffers: every buffer ends, or begins, at a page without access,
// and the results have the bits of a run without guards. (Prefetches may pass the end: they never fault.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/float_kernels.h"
#include "kernels/isa.h"
#include "ops/attention.h"
#include "ops/kv_block.h"
#include "ops/linear_test_util.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "os/testing/guarded_memory.h"

namespace isthmus {
namespace {

using namespace testing_linear;  // NOLINT: a test's own helpers
using testing_memory::Guard;
using testing_memory::GuardedArray;

using Floats = GuardedArray<float>;
using GuardedBytes = GuardedArray<std::byte>;

constexpr Guard kGuards[] = {Guard::kBehind, Guard::kBefore};

std::string guard_name(Guard guard) { return guard == Guard::kBehind ? " guard behind" : " guard before"; }

template <class T>
void expect_bits(std::span<const T> got, std::span<const T> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  ASSERT_TRUE(got.empty() || std::memcmp(got.data(), want.data(), got.size_bytes()) == 0) << what;
}

template <class T>
void expect_bits(const GuardedArray<T>& got, const std::vector<T>& want, const std::string& what) {
  expect_bits<T>(got.span(), want, what);
}

// ---- matrix products ----

struct GuardedShape {
  size_t rows;
  size_t cols;
};

/// Odd rows, and columns of one block, of part of a vector of blocks, and of more than one super block.
constexpr GuardedShape kGuardedShapes[] = {{1, 32}, {7, 96}, {17, 160}, {33, 64}, {5, 256}, {19, 768}};

/// The product, its accumulated form with a bias, and the gated form, one behind the other.
std::vector<float> products(const PackedMatrix& w, const float* x, size_t tokens, Compute compute, Isa isa,
                            const float* bias, std::byte* memory, float* y, ThreadPool& pool) {
  const Activations acts(x, w.cols, tokens, w.cols, compute, memory, linear_kernels_for(isa));
  std::vector<float> out;
  const size_t n = tokens * w.rows;
  pool.run([&](Worker& worker) {
    const auto [first, last] = worker.range(tokens);
    quantize_activations(acts, first, last);
    worker.barrier();
    const LinearTask plain{&w, y, w.rows, bias, false};
    linear({&plain, 1}, acts, worker);
  });
  out.insert(out.end(), y, y + n);
  pool.run([&](Worker& worker) {
    const LinearTask again{&w, y, w.rows, nullptr, true};
    linear({&again, 1}, acts, worker);
  });
  out.insert(out.end(), y, y + n);
  pool.run([&](Worker& worker) { linear_gated(w, w, Gate::kSilu, acts, y, w.rows, worker); });
  out.insert(out.end(), y, y + n);
  return out;
}

class GuardedLinear : public testing::TestWithParam<DType> {};

TEST_P(GuardedLinear, ProductsStayInTheirBuffers) {
  const DType type = GetParam();
  ThreadPool pool(1, false);
  for (const auto& [rows, cols] : kGuardedShapes) {
    if (!row_bytes(type, cols)) continue;
    const auto src = random_rows(type, rows, cols, static_cast<uint32_t>(cols));
    const auto bias = random_floats(rows, 5);
    for (const Compute compute : {Compute::kInt8, Compute::kInt16, Compute::kF32, Compute::kBf16}) {
      const auto packed = pack(type, src, rows, cols, compute);
      for (const size_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 19}) {
        const auto x = random_floats(tokens * cols, 7);
        std::vector<float> y(tokens * rows);
        for (const Isa isa : tested_isas()) {
          if (compute == Compute::kBf16 && !have_bf16(linear_kernels_for(isa))) continue;
          const size_t need = Activations::bytes(tokens, cols, compute, linear_kernels_for(isa));
          AlignedBytes memory(need);
          const auto want = products(packed.matrix, x.data(), tokens, compute, isa, bias.data(),
                                     memory.data(), y.data(), pool);
          for (const Guard guard : kGuards) {
            const GuardedBytes w(std::span(packed.bytes.data(), packed.bytes.size()), guard);
            w.protect();
            const Floats x_guarded(x, guard);
            x_guarded.protect();
            const Floats bias_guarded(bias, guard);
            const GuardedBytes memory_guarded(need, guard);
            const Floats y_guarded(tokens * rows, guard);
            PackedMatrix matrix = packed.matrix;
            matrix.data = w.data();
            const auto got = products(matrix, x_guarded.data(), tokens, compute, isa, bias_guarded.data(),
                                      memory_guarded.data(), y_guarded.data(), pool);
            expect_bits<float>(got, want,
                               std::string(dtype_info(type).name) + " " + std::to_string(rows) + "x" +
                                   std::to_string(cols) + " tokens " + std::to_string(tokens) + " compute " +
                                   std::to_string(static_cast<int>(compute)) + " " +
                                   std::string(isa_name(isa)) + guard_name(guard));
          }
        }
      }
    }
  }
}

TEST_P(GuardedLinear, PackingAndUnpackingStayInTheirBuffers) {
  const DType type = GetParam();
  for (const auto& [rows, cols] : kGuardedShapes) {
    if (!row_bytes(type, cols)) continue;
    const auto src = random_rows(type, rows, cols, 3);
    for (const Compute compute : {Compute::kInt8, Compute::kF32}) {
      const auto packed = pack(type, src, rows, cols, compute);
      for (const Guard guard : kGuards) {
        const std::string what = std::string(dtype_info(type).name) + guard_name(guard);
        const GuardedBytes source(src, guard);
        source.protect();
        const GuardedBytes bytes(packed.bytes.size(), guard);
        ASSERT_TRUE(
            pack_panels(type, source.data(), rows, cols, compute, 0, panel_count(rows), bytes.data()).ok());
        expect_bits<std::byte>(bytes.span(), {packed.bytes.data(), packed.bytes.size()}, what);
        bytes.protect();
        PackedMatrix matrix = packed.matrix;
        matrix.data = bytes.data();
        std::vector<float> want(cols);
        const Floats got(cols, guard);
        for (size_t r = 0; r < rows; ++r) {
          unpack_row(packed.matrix, r, want.data());
          unpack_row(matrix, r, got.data());
          expect_bits(got, want, what);
          ASSERT_TRUE(
              dequantize_row(type, source.data() + r * row_bytes(type, cols).value(), cols, got.data()).ok());
          expect_bits(got, want, what);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GuardedLinear, testing::ValuesIn(kAllTypes),
                         [](const auto& param) { return std::string(dtype_info(param.param).name); });

// ---- vectors of floats ----

using Map = void (*)(const FloatKernels&, const float* a, const float* b, size_t n, float* out);

struct NamedMap {
  const char* name;
  Map run;
};

constexpr NamedMap kMaps[] = {
    {"rms_norm", [](auto& k, auto* a, auto* b, size_t n, float* out) { k.rms_norm(a, b, n, 1e-5F, out); }},
    {"add", [](auto& k, auto* a, auto* b, size_t n, float* out) { k.add(a, b, n, out); }},
    {"mul", [](auto& k, auto* a, auto* b, size_t n, float* out) { k.mul(a, b, n, out); }},
    {"mul_scalar", [](auto& k, auto* a, auto*, size_t n, float* out) { k.mul_scalar(a, 1.5F, n, out); }},
    {"silu_mul",
     [](auto& k, auto* a, auto* b, size_t n, float* out) { k.gate_mul(Gate::kSilu, a, b, out, n); }},
    {"gelu_mul",
     [](auto& k, auto* a, auto* b, size_t n, float* out) { k.gate_mul(Gate::kGeluTanh, a, b, out, n); }},
    {"exp", [](auto& k, auto* a, auto*, size_t n, float* out) { k.exp(a, n, out); }},
    {"silu", [](auto& k, auto* a, auto*, size_t n, float* out) { k.silu(a, n, out); }},
    {"gelu_tanh", [](auto& k, auto* a, auto*, size_t n, float* out) { k.gelu_tanh(a, n, out); }},
    {"tanh", [](auto& k, auto* a, auto*, size_t n, float* out) { k.tanh(a, n, out); }},
    {"softcap", [](auto& k, auto* a, auto*, size_t n, float* out) { k.softcap(a, 30.0F, n, out); }},
    {"exp_shifted",
     [](auto& k, auto* a, auto*, size_t n, float* out) { k.exp_shifted(a, n, 1.0F, 0.5F, out); }},
    {"subtract", [](auto& k, auto* a, auto*, size_t n, float* out) { k.subtract(a, 0.5F, n, out); }},
};

/// All that reduces a vector to one number.
std::vector<double> reductions(const FloatKernels& k, const float* a, const float* b, size_t n) {
  return {static_cast<double>(k.max(a, n)),
          static_cast<double>(k.argmax(a, n)),
          static_cast<double>(k.find_greater(a, n / 3, n, 1e9F)),
          static_cast<double>(k.find_greater(a, 0, n, 1.0F)),
          k.sum(a, n),
          k.sum_exp(a, n, 1.0F),
          static_cast<double>(k.dot(a, b, n))};
}

TEST(GuardedFloats, VectorsOfEveryLengthStayInTheirBuffers) {
  for (const Isa isa : available_isas()) {
    const FloatKernels& kernels = float_kernels_for(isa);
    for (size_t n = 1; n <= 130; ++n) {
      const auto a = random_floats(n, static_cast<uint32_t>(n));
      const auto b = random_floats(n, static_cast<uint32_t>(n + 1));
      std::vector<float> want(n);
      for (const Guard guard : kGuards) {
        const Floats ga(a, guard);
        const Floats gb(b, guard);
        const Floats got(n, guard);
        ga.protect();
        gb.protect();
        const std::string what =
            std::string(isa_name(isa)) + " n " + std::to_string(n) + guard_name(guard) + " ";
        for (const NamedMap& map : kMaps) {
          map.run(kernels, a.data(), b.data(), n, want.data());
          map.run(kernels, ga.data(), gb.data(), n, got.data());
          expect_bits(got, want, what + map.name);
        }
        EXPECT_EQ(reductions(kernels, ga.data(), gb.data(), n), reductions(kernels, a.data(), b.data(), n))
            << what;
      }
    }
  }
}

TEST(GuardedFloats, HalfTypesAndRotationsStayInTheirBuffers) {
  for (const Isa isa : available_isas()) {
    const FloatKernels& kernels = float_kernels_for(isa);
    for (size_t n = 2; n <= 130; n += 2) {
      const auto a = random_floats(n, static_cast<uint32_t>(n));
      const auto angles = random_floats(n, 9);
      for (const Guard guard : kGuards) {
        const std::string what = std::string(isa_name(isa)) + " n " + std::to_string(n) + guard_name(guard);
        const Floats ga(a, guard);
        const GuardedArray<uint16_t> halves(n, guard);
        const Floats back(n, guard);
        std::vector<uint16_t> want_halves(n);
        std::vector<float> want(n);
        for (const bool brain : {false, true}) {
          const auto narrow = brain ? kernels.f32_to_bf16 : kernels.f32_to_f16;
          const auto widen = brain ? kernels.bf16_to_f32 : kernels.f16_to_f32;
          narrow(a.data(), n, want_halves.data());
          widen(want_halves.data(), n, want.data());
          narrow(ga.data(), n, halves.data());
          widen(halves.data(), n, back.data());
          expect_bits(halves, want_halves, what);
          expect_bits(back, want, what);
        }
        const Floats c{std::span(angles).first(n / 2), guard};
        const Floats s{std::span(angles).last(n / 2), guard};
        for (const auto rotate : {kernels.rotate_half, kernels.rotate_interleaved}) {
          want = a;
          rotate(want.data(), angles.data(), angles.data() + n / 2, n);
          rotate(ga.data(), c.data(), s.data(), n);
          expect_bits(ga, want, what);
          std::ranges::copy(a, ga.data());
        }
      }
    }
  }
}

// ---- rows: norms and rotary embedding ----

TEST(GuardedRows, NormsAndRopeStayInTheirBuffers) {
  constexpr size_t kRows = 3;
  for (const size_t head_dim : {8, 24, 64, 80}) {
    const size_t n = 3 * head_dim;
    const auto x = random_floats(kRows * n, 1);
    const auto weight = random_floats(n, 2);
    RopeParams params;
    params.dims = head_dim / 2;
    params.style = RopeStyle::kHalf;
    const auto rope = RopeTable::create(params, 64);
    ASSERT_TRUE(rope.ok());
    for (const Guard guard : kGuards) {
      const std::string what = "head " + std::to_string(head_dim) + guard_name(guard);
      const Floats gx(x, guard);
      const Floats gw(weight, guard);
      const Floats gh{std::span(weight).first(head_dim), guard};
      const Floats got(kRows * n, guard);
      std::vector<float> want(kRows * n);
      const NormRows plain{x.data(), n, want.data(), n, n};
      const NormRows guarded{gx.data(), n, got.data(), n, n};
      rms_norm_rows(plain, 0, kRows, weight.data(), 1e-5F);
      rms_norm_rows(guarded, 0, kRows, gw.data(), 1e-5F);
      expect_bits(got, want, what + " rms");
      rms_norm_heads(plain, 0, kRows, weight.data(), 1e-5F, head_dim);
      rms_norm_heads(guarded, 0, kRows, gh.data(), 1e-5F, head_dim);
      expect_bits(got, want, what + " heads");

      std::vector<float> row(rope->row_floats());
      const Floats grow(rope->row_floats(), guard);
      rope->row(17, row.data());
      rope->row(17, grow.data());
      expect_bits(grow, row, what + " row");
      want = x;
      rope->rotate_by(row.data(), want.data(), 3 * kRows, head_dim);
      rope->rotate_by(grow.data(), gx.data(), 3 * kRows, head_dim);
      expect_bits(gx, want, what + " rope");
    }
  }
}

// ---- attention ----

/// The KV of one head in blocks that lie apart, each part between guards of its own (or without any).
struct Stream {
  std::vector<GuardedBytes> parts;
  std::vector<KvBlockRef> refs;
  KvStreamRef view;

  Stream(KvType type, size_t head_dim, size_t keys, uint32_t seed, Guard guard) {
    const auto k = random_floats(keys * head_dim, seed);
    const auto v = random_floats(keys * head_dim, seed + 1);
    const size_t blocks = (keys + kBlockKeys - 1) / kBlockKeys;
    for (size_t b = 0; b < blocks; ++b) {
      KvBlockRef ref;
      const GuardedBytes& key = parts.emplace_back(kv_part_bytes(type, KvPart::kKey, head_dim), guard);
      ref.k = key.data();
      std::memset(key.data(), 0, key.size());
      const GuardedBytes& value = parts.emplace_back(kv_part_bytes(type, KvPart::kValue, head_dim), guard);
      ref.v = value.data();
      std::memset(value.data(), 0, value.size());
      const size_t first = b * kBlockKeys;
      const size_t count = std::min(kBlockKeys, keys - first);
      kv_write_rows(type, KvPart::kKey, const_cast<std::byte*>(ref.k), 0, count, k.data() + first * head_dim,
                    head_dim, head_dim);
      kv_write_rows(type, KvPart::kValue, const_cast<std::byte*>(ref.v), 0, count,
                    v.data() + first * head_dim, head_dim, head_dim);
      ref.base_pos = static_cast<int32_t>(first);
      ref.k_type = type;
      ref.v_type = type;
      refs.push_back(ref);
    }
    for (const GuardedBytes& part : parts) part.protect();
    view = {refs, keys, 0};
  }
};

TEST(GuardedAttention, EveryBufferIsKept) {
  constexpr size_t kHeads = 3;
  for (const size_t head_dim : {8, 40, 64, 128}) {
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8}) {
      for (const size_t keys : {1, 33, 300}) {
        for (size_t tokens = 1; tokens <= 9; tokens += 4) {
          const size_t n = tokens * kHeads * head_dim;
          const auto q = random_floats(n, 3);
          std::vector<QueryView> views;
          for (size_t t = 0; t < tokens; ++t) {
            const auto end = static_cast<uint32_t>(keys - std::min(keys - 1, tokens - 1 - t));
            views.push_back({0, end, 0, nullptr, 0});
          }
          std::vector<float> want;
          for (const Isa isa : available_isas()) {
            for (const Guard guard : kGuards) {
              const Stream stream(type, head_dim, keys, 11, guard);
              const AttentionSeq seq{0, tokens, {&stream.view, 1}, views};
              const Floats gq(q, guard);
              gq.protect();
              const Floats out(n, guard);
              AttentionArgs args{
                  gq.data(), kHeads * head_dim, out.data(), kHeads * head_dim, kHeads, 1, head_dim, 0.125F,
                  0.0F,      {&seq, 1},         nullptr};
              args.kernels = &attention_kernels_for(isa);
              const GuardedBytes scratch(attention_scratch_bytes(args, 1), guard);
              std::memset(scratch.data(), 0, scratch.size());
              attention(args, scratch.data(), 0, 1);
              // All instruction sets give the same bits; the first run is between guards at its other end.
              if (want.empty()) want.assign(out.data(), out.data() + n);
              expect_bits(out, want,
                          std::string(isa_name(isa)) + " head " + std::to_string(head_dim) + " keys " +
                              std::to_string(keys) + " tokens " + std::to_string(tokens) + guard_name(guard));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace isthmus
