// The modelled tile instructions against cases worked out by hand, and what they refuse.
#include "kernels/amx/tile_model.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace isthmus {
namespace {

using Sign = TileMachine::Sign;

/// C 2 x 3 words in tile 0, A 2 x 2 words in tile 1, B 2 x 3 words in tile 2; tile 3 is 16 x 64 bytes.
TileMachine small_machine() {
  const TileConfig config = tile_config({{2, 12}, {2, 8}, {2, 12}, {16, 64}, {0, 0}, {0, 0}, {0, 0}, {0, 0}});
  TileMachine machine;
  machine.load_config(&config);
  return machine;
}

template <class Value, size_t kCount>
void load_rows(TileMachine& machine, size_t tile, const std::array<Value, kCount>& values, size_t rows) {
  machine.load(tile, values.data(), sizeof(values) / rows);
}

template <class Value>
std::array<Value, 6> sums_of(TileMachine& machine) {
  std::array<Value, 6> out;
  machine.store(0, out.data(), 12);
  return out;
}

uint16_t bf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

TEST(TileModel, LoadsAndStoresRowsAtTheirStrides) {
  TileMachine machine = small_machine();
  std::array<uint8_t, 40> in;
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i);
  machine.load(1, in.data(), 20);
  std::array<uint8_t, 40> out{};
  machine.store(1, out.data(), 32);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(out[i], i);
    EXPECT_EQ(out[32 + i], 20 + i);
  }
  for (size_t i = 8; i < 32; ++i) EXPECT_EQ(out[i], 0) << "past the row";
  machine.zero(1);
  machine.store(1, out.data(), 32);
  EXPECT_EQ(out[7], 0);
  EXPECT_EQ(machine.faults(), 0U);
}

TEST(TileModel, ByteProductsWorkedOutByHand) {
  // A row 0: -1 2 3 4 | 0 0 0 1, row 1: 127 -128 1 1 | 2 0 0 0. B words are columns, four k each.
  const std::array<int8_t, 16> a = {-1, 2, 3, 4, 0, 0, 0, 1, 127, -128, 1, 1, 2, 0, 0, 0};
  const std::array<uint8_t, 24> b = {1, 1, 1, 1, 255, 0, 0, 0, 0, 0, 0, 128,   // k 0..3 of columns 0, 1, 2
                                     5, 0, 0, 7, 0,   0, 0, 9, 3, 0, 0, 255};  // k 4..7
  const std::array<int32_t, 6> c = {1000, 0, 0, 0, 0, -5};
  const auto product = [&]<Sign kA, Sign kB>() {
    TileMachine machine = small_machine();
    load_rows(machine, 0, c, 2);
    load_rows(machine, 1, a, 2);
    load_rows(machine, 2, b, 2);
    machine.dot_bytes<kA, kB>(0, 1, 2);
    EXPECT_EQ(machine.faults(), 0U);
    return sums_of<int32_t>(machine);
  };
  // Signed times unsigned: row 0: 8 + 7, -255 + 9, 512 + 255; row 1: 1 + 10, 32385, 128 + 6.
  EXPECT_EQ((product.operator()<Sign::kSigned, Sign::kUnsigned>()),
            (std::array{1015, -246, 767, 11, 32385, 129}));
  // Signed times signed: 255 is -1, 128 is -128.
  EXPECT_EQ((product.operator()<Sign::kSigned, Sign::kSigned>()),
            (std::array{1015, 1 + 9, -512 - 1, 11, -127, -128 + 6 - 5}));
  // Unsigned times signed: -1 in A is 255, -128 is 128.
  EXPECT_EQ((product.operator()<Sign::kUnsigned, Sign::kSigned>()),
            (std::array{1000 + 264 + 7, -255 + 9, -513, 257 + 10, -127, -128 + 6 - 5}));
  EXPECT_EQ((product.operator()<Sign::kUnsigned, Sign::kUnsigned>()),
            (std::array{1271, 255 * 255 + 9, 767, 267, 32385, 129}));
}

TEST(TileModel, ByteSumsWrapAroundAt32Bits) {
  TileMachine machine = small_machine();
  load_rows(machine, 0, std::array<int32_t, 6>{std::numeric_limits<int32_t>::max(), 0, 0, 0, 0, 0}, 2);
  load_rows(machine, 1, std::array<int8_t, 16>{1}, 2);
  load_rows(machine, 2, std::array<uint8_t, 24>{1}, 2);
  machine.dot_bytes<Sign::kSigned, Sign::kUnsigned>(0, 1, 2);
  EXPECT_EQ(sums_of<int32_t>(machine)[0], std::numeric_limits<int32_t>::min());
}

/// C[0][0] after one product of the pairs (a0, a1), (a2, a3) and (b0, b1), (b2, b3).
float bf16_case(const std::array<float, 4>& a, const std::array<float, 4>& b, float c) {
  TileMachine machine = small_machine();
  load_rows(machine, 0, std::array<float, 6>{c}, 2);
  load_rows(machine, 1, std::array<uint16_t, 8>{bf16(a[0]), bf16(a[1]), bf16(a[2]), bf16(a[3])}, 2);
  std::array<uint16_t, 12> pairs{};
  pairs[0] = bf16(b[0]);
  pairs[1] = bf16(b[1]);
  pairs[6] = bf16(b[2]);
  pairs[7] = bf16(b[3]);
  load_rows(machine, 2, pairs, 2);
  machine.dot_bf16(0, 1, 2);
  EXPECT_EQ(machine.faults(), 0U);
  return sums_of<float>(machine)[0];
}

TEST(TileModel, Bf16ProductsWorkedOutByHand) {
  EXPECT_EQ(bf16_case({1, 2, 3, 4}, {5, 6, 7, 8}, 0.5F), 0.5F + 5 + 12 + 21 + 32);
  EXPECT_EQ(bf16_case({-1.5F, 0, 0, 0}, {2, 9, 9, 9}, 1), -2);
}

TEST(TileModel, Bf16SumsGoEvenOddThenC) {
  const float tiny = 0x1p-24F;
  // One chain over all four would lose 2^-24 twice against 1. The odd elements are summed apart: 2^-23 stays.
  EXPECT_EQ(bf16_case({1, tiny, 0, tiny}, {1, 1, 0, 1}, 0), 1 + 0x1p-23F);
  // The even chain rounds each step: 1 + 2^-24 + 2^-24 is 1, ties to even.
  EXPECT_EQ(bf16_case({1, 0, tiny, 0}, {1, 0, 1, 0}, 0), 1);
  // Products are summed before C joins: (2^-24 + 2^-24) + 1.
  EXPECT_EQ(bf16_case({tiny, tiny, 0, 0}, {1, 1, 0, 0}, 1), 1 + 0x1p-23F);
  // A product is not rounded before it is added: (1 + 2^-7)^2 - 1 = 2^-6 + 2^-14.
  EXPECT_EQ(bf16_case({-1, 0, 1 + 0x1p-7F, 0}, {1, 0, 1 + 0x1p-7F, 0}, 0), 0x1p-6F + 0x1p-14F);
}

TEST(TileModel, Bf16SubnormalsAreZero) {
  EXPECT_EQ(bf16_case({0x1p-130F, 0, 0, 0}, {0x1p100F, 0, 0, 0}, 0), 0) << "in A";
  EXPECT_EQ(bf16_case({0x1p100F, 0, 0, 0}, {0x1p-130F, 0, 0, 0}, 0), 0) << "in B";
  EXPECT_EQ(bf16_case({0, 0, 0, 0}, {0, 0, 0, 0}, 0x1p-130F), 0) << "in C";
  EXPECT_EQ(bf16_case({0x1p-70F, 0, 0, 0}, {0x1p-70F, 0, 0, 0}, 0), 0) << "a product";
  EXPECT_EQ(bf16_case({0x1p-63F, 0, 0, 0}, {0x1p-63F, 0, 0, 0}, 0), 0x1p-126F) << "the smallest normal";
}

TEST(TileModel, Bf16InfinityAndNanPassThrough) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bf16_case({infinity, 0, 0, 0}, {1, 0, 0, 0}, 0), infinity);
  EXPECT_TRUE(std::isnan(bf16_case({infinity, 0, 0, 0}, {0, 0, 0, 0}, 0)));
  EXPECT_TRUE(std::isnan(bf16_case({0, 0, 0, 0}, {0, 0, 0, 0}, std::nanf(""))));
}

TEST(TileModel, RefusesWhatTheProcessorRefuses) {
  TileMachine machine;
  std::array<std::byte, kTileBytes> memory{};
  machine.zero(0);
  machine.load(0, memory.data(), 64);
  machine.store(0, memory.data(), 64);
  EXPECT_EQ(machine.faults(), 3U) << "not configured";

  machine = small_machine();
  machine.zero(7);
  EXPECT_EQ(machine.faults(), 1U) << "a tile without a shape";
  machine.dot_bytes<Sign::kSigned, Sign::kSigned>(0, 1, 1);
  machine.dot_bytes<Sign::kSigned, Sign::kSigned>(0, 0, 2);
  EXPECT_EQ(machine.faults(), 3U) << "one tile in two places";
  machine.dot_bytes<Sign::kSigned, Sign::kSigned>(0, 2, 1);
  machine.dot_bf16(3, 1, 2);
  EXPECT_EQ(machine.faults(), 5U) << "shapes that do not fit";
  machine.release();
  machine.dot_bf16(0, 1, 2);
  EXPECT_EQ(machine.faults(), 6U) << "released";
}

TEST(TileModel, RefusesConfigurationsOutOfLimits) {
  const TileConfig good = tile_config({{16, 64}, {1, 4}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}});
  const auto faults = [&](auto change) {
    TileConfig config = good;
    change(config);
    TileMachine machine;
    machine.load_config(&config);
    return machine.faults();
  };
  EXPECT_EQ(faults([](TileConfig&) {}), 0U);
  EXPECT_EQ(faults([](TileConfig& c) { c.palette = 2; }), 1U);
  EXPECT_EQ(faults([](TileConfig& c) { c.reserved[5] = 1; }), 1U);
  EXPECT_EQ(faults([](TileConfig& c) { c.rows[0] = 17; }), 1U);
  EXPECT_EQ(faults([](TileConfig& c) { c.row_bytes[0] = 65; }), 1U);
  EXPECT_EQ(faults([](TileConfig& c) { c.rows[1] = 0; }), 1U);
  EXPECT_EQ(faults([](TileConfig& c) { c.rows[9] = 1; }), 1U);
}

TEST(TileModel, UseConfiguresAThreadOnceUntilTheShapesChange) {
  static constexpr TileConfig kOne =
      tile_config({{16, 64}, {16, 32}, {8, 64}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}});
  static constexpr TileConfig kOther =
      tile_config({{16, 64}, {16, 16}, {4, 64}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}});
  const auto run = [](std::vector<uint64_t>& loads) {
    const auto use = [&](const TileConfig& config) {
      ModelTiles::use(config);
      loads.push_back(ModelTiles::machine().config_loads());
    };
    for (int i = 0; i < 3; ++i) use(kOne);
    use(kOther);
    use(kOne);
    ModelTiles::machine().release();  // somebody else's tiles on this thread
    use(kOne);
    use(kOne);
    ModelTiles::zero<0>();
    loads.push_back(ModelTiles::machine().faults());
  };
  std::vector<uint64_t> of_thread[2];
  std::thread first([&] { run(of_thread[0]); });
  std::thread second([&] { run(of_thread[1]); });
  first.join();
  second.join();
  const std::vector<uint64_t> expected = {1, 1, 1, 2, 3, 4, 4, 0};
  EXPECT_EQ(of_thread[0], expected);
  EXPECT_EQ(of_thread[1], expected);
}

}  // namespace
}  // namespace isthmus
