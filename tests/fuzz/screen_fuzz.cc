// The bytes of an output head's screen, as a damaged or forged file would hold them: pieces of the input are
// laid over a good one. Whatever they say, products that are given are those of linear(), bit for bit.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "ops/aligned_bytes.h"
#include "ops/linear.h"
#include "ops/screen.h"
#include "ops/screen_build.h"

namespace {

constexpr size_t kRows = 4096;
constexpr size_t kCols = 128;
constexpr size_t kPieceHead = 6;  // four bytes of offset, one of length, one that says how to fill

struct Head {
  isthmus::ThreadPool pool{1, false};
  isthmus::AlignedBytes packed;
  isthmus::PackedMatrix matrix{};
  size_t screen_bytes = 0;
  isthmus::AlignedBytes good;
  std::unique_ptr<isthmus::ScreenScratch> scratch;
  std::vector<float> x;
  std::vector<float> full;

  Head() : x(kCols), full(kRows) {
    using isthmus::Compute;
    using isthmus::DType;
    const size_t stride = isthmus::row_bytes(DType::kQ8_0, kCols).value();
    std::vector<std::byte> source(kRows * stride);
    uint32_t state = 1;
    for (auto& byte : source) {
      state = state * 1664525 + 1013904223;
      byte = static_cast<std::byte>(state >> 27);  // scales are small numbers
    }
    const size_t bytes = isthmus::packed_bytes(DType::kQ8_0, kRows, kCols, Compute::kInt16).value();
    packed = isthmus::aligned_bytes(bytes, isthmus::kVectorBytes);
    if (!isthmus::pack_panels(DType::kQ8_0, source.data(), kRows, kCols, Compute::kInt16, 0,
                              isthmus::panel_count(kRows), packed.get())
             .ok()) {
      std::abort();
    }
    matrix = {isthmus::pack_format(DType::kQ8_0, Compute::kInt16).value(), kRows, kCols, packed.get()};
    std::vector<float> seen(kCols * 4 * kCols);
    for (size_t i = 0; i < seen.size(); ++i) seen[i] = std::sin(static_cast<float>(i * i % 977));
    isthmus::ScreenMoments moments(kCols);
    moments.add(seen.data(), seen.size() / kCols);
    screen_bytes = isthmus::Screen::bytes(kRows, kCols);
    good = isthmus::aligned_bytes(screen_bytes, isthmus::kVectorBytes);
    const auto basis = isthmus::screen_basis(moments);
    if (!basis.ok() || !isthmus::build_screen(matrix, *basis, pool, {}, {good.get(), screen_bytes}).ok()) {
      std::abort();
    }
    scratch = std::move(*isthmus::ScreenScratch::create(kRows, kCols, 1));
    for (size_t i = 0; i < kCols; ++i) x[i] = std::cos(static_cast<float>(i * 3));
  }
};

/// Lays the pieces that the input describes over `screen`.
void overlay(const uint8_t* data, size_t size, std::byte* screen, size_t bytes) {
  while (size > kPieceHead) {
    uint32_t where = 0;
    std::memcpy(&where, data, sizeof(where));
    const size_t length = data[4];
    const bool header = (data[5] & 1) != 0;  // every other piece into the header, where most is decided
    const size_t limit = header ? sizeof(isthmus::ScreenHeader) : bytes;
    data += kPieceHead;
    size -= kPieceHead;
    const size_t at = where % limit;
    const size_t n = std::min({length, size, limit - at});
    std::memcpy(screen + at, data, n);
    data += n;
    size -= n;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Head head;
  static const isthmus::AlignedBytes screen =
      isthmus::aligned_bytes(head.screen_bytes, isthmus::kVectorBytes);
  std::memcpy(screen.get(), head.good.get(), head.screen_bytes);
  overlay(data, size, screen.get(), head.screen_bytes);
  const auto view = isthmus::Screen::view(head.matrix, {screen.get(), head.screen_bytes});
  if (!view.ok()) return 0;

  using isthmus::Compute;
  const auto records =
      isthmus::aligned_bytes(isthmus::Activations::bytes(1, kCols, Compute::kInt16), isthmus::kVectorBytes);
  const isthmus::Activations acts(head.x.data(), kCols, 1, kCols, Compute::kInt16, records.get());
  isthmus::quantize_activations(acts, 0, 1);
  std::vector<float> found(kRows);
  const size_t k = size == 0 ? 1 : 1 + data[0] % isthmus::kScreenMostBest;
  const isthmus::LinearTask task{&head.matrix, head.full.data(), kRows};
  head.pool.run([&](isthmus::Worker& worker) {
    isthmus::linear({&task, 1}, acts, worker);
    isthmus::screen_best(*view, acts, k, found.data(), *head.scratch, worker);
  });
  size_t given = 0;
  for (size_t i = 0; i < kRows; ++i) {
    if (found[i] == -std::numeric_limits<float>::infinity()) continue;
    if (std::memcmp(&found[i], &head.full[i], sizeof(float)) != 0) std::abort();
    ++given;
  }
  if (given < k) std::abort();
  return 0;
}
