// The packed bytes themselves: fast against clear packing, and the layout that caches on disk rely on.
#include <gtest/gtest.h>

#include "base/crc32.h"
#include "ops/linear_codes.h"
#include "ops/linear_pack_fast.h"
#include "ops/linear_test_util.h"

namespace isthmus {
namespace {

using namespace testing_linear;  // NOLINT: a test's own helpers

/// Bytes of every value, at an odd address, so that nothing relies on alignment or on sensible scales.
std::vector<std::byte> any_bytes(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<std::byte> out(count + 1);
  for (auto& b : out) b = static_cast<std::byte>(rng());
  return out;
}

/// The matrix packed by the clear version alone.
AlignedBytes pack_plainly(DType type, const std::byte* src, size_t rows, size_t cols) {
  const PackFormat format = pack_format(type, Compute::kInt16).value();
  AlignedBytes out(packed_bytes(type, rows, cols, Compute::kInt16).value());
  const size_t stride = row_bytes(type, cols).value();
  for (size_t panel = 0; panel < panel_count(rows); ++panel) {
    packing::pack_units(format, src + panel * kPanelRows * stride, stride,
                        std::min(kPanelRows, rows - panel * kPanelRows), cols, 0,
                        out.data() + panel * panel_bytes(format, cols));
  }
  return out;
}

TEST(LinearPackFast, BytesEqualTheClearVersion) {
  size_t fast_formats = 0;
  for (const DType type : kAllTypes) {
    const PackFormat format = pack_format(type, Compute::kInt16).value();
    if (!is_quantised(format)) continue;
    fast_formats += packing::fast_pack_unit(format) != nullptr ? 1 : 0;
    for (const size_t cols : {32, 64, 96, 256, 288, 512, 1536}) {
      if (!row_bytes(type, cols)) continue;
      for (const size_t rows : {1, 15, 16, 17, 64}) {
        const auto src = any_bytes(rows * row_bytes(type, cols).value(), static_cast<uint32_t>(rows * cols));
        const AlignedBytes want = pack_plainly(type, src.data() + 1, rows, cols);
        AlignedBytes got(want.size());
        ASSERT_TRUE(
            pack_panels(type, src.data() + 1, rows, cols, Compute::kInt16, 0, panel_count(rows), got.data())
                .ok());
        ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0)
            << dtype_info(type).name << " " << rows << "x" << cols;
      }
    }
  }
  EXPECT_EQ(fast_formats, 9u);
}

TEST(LinearPackFast, LayoutVersionIsRaisedWhenAByteMoves) {
  // Files of the packed cache are keyed by kPanelLayoutVersion. When this changes on purpose, raise it.
  uint32_t all = 0;
  for (const DType type : kAllTypes) {
    const size_t rows = 20;
    const size_t cols = 512;
    const auto src = any_bytes(rows * row_bytes(type, cols).value(), 7);
    AlignedBytes got(packed_bytes(type, rows, cols, Compute::kInt16).value());
    ASSERT_TRUE(
        pack_panels(type, src.data(), rows, cols, Compute::kInt16, 0, panel_count(rows), got.data()).ok());
    all = all * 31 + crc32({got.data(), got.size()});
  }
  EXPECT_EQ(kPanelLayoutVersion, 1u);
  EXPECT_EQ(all, 1534265214u);
}

}  // namespace
}  // namespace isthmus
