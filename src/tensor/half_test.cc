#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace isthmus {
namespace {

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

/// The value of an f16 from its definition, in double.
double f16_by_definition(uint16_t half) {
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  const int exponent = (half >> 10) & 31;
  const double mantissa = half & 1023;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool is_f16_special(uint16_t half) { return (half & 0x7c00) == 0x7c00; }

TEST(Half, EveryF16WidensToItsDefinition) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    if (is_f16_special(half)) continue;
    ASSERT_EQ(static_cast<double>(f16_to_f32(half)), f16_by_definition(half)) << h;
    ASSERT_EQ(std::signbit(f16_to_f32(half)), (half & 0x8000) != 0) << h;
  }
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const bool nan = is_f16_special(half) && (half & 0x3ff) != 0;
    const auto expected =
        static_cast<uint16_t>(nan ? half | 0x200 : half);  // a signalling NaN comes back quiet
    ASSERT_EQ(f32_to_f16(f16_to_f32(half)), expected) << h;
  }
}

TEST(Half, NarrowingRoundsToNearestEvenBetweenAllNeighbours) {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = f16_to_f32(half);
    const float high = f16_to_f32(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;  // exact in float
    const auto even = static_cast<uint16_t>(half % 2 == 0 ? half : half + 1);
    ASSERT_EQ(f32_to_f16(middle), even) << half;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << half;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), half) << half;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), half + 1) << half;
  }
}

TEST(Half, OverflowInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(-infinity), 0xfc00);
  EXPECT_EQ(f16_to_f32(0x7c00), infinity);
  EXPECT_EQ(f16_to_f32(0xfc00), -infinity);
  EXPECT_EQ(f32_to_f16(float_of(0x7f800001)), 0x7e00);  // payload lost, still a NaN
  EXPECT_EQ(f32_to_f16(float_of(0xffaaa000)), 0xff55);
  EXPECT_EQ(bits_of(f16_to_f32(0x7d55)), 0x7feaa000u);
}

TEST(Half, TinyFloatsBecomeSignedZero) {
  EXPECT_EQ(f32_to_f16(float_of(1)), 0);
  EXPECT_EQ(f32_to_f16(float_of(0x80000001)), 0x8000);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);                        // tie with zero: even
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 1);  // above the tie
  EXPECT_EQ(f32_to_f16(-std::nextafter(0x1p-25f, 1.0f)), 0x8001);
}

TEST(Half, Bf16WidensExactlyAndNarrowsToNearestEven) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    ASSERT_EQ(bits_of(bf16_to_f32(half)), h << 16);
    const bool nan = (half & 0x7fff) > 0x7f80;
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(half)), nan ? half | 0x40 : half) << h;
  }
  EXPECT_EQ(f32_to_bf16(float_of(0x3f808000)), 0x3f80);  // tie, even below
  EXPECT_EQ(f32_to_bf16(float_of(0x3f818000)), 0x3f82);  // tie, even above
  EXPECT_EQ(f32_to_bf16(float_of(0x3f808001)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(float_of(0x7f7fffff)), 0x7f80);  // rounds up to infinity
  EXPECT_EQ(f32_to_bf16(float_of(0x7f800001)), 0x7fc0);  // never rounds a NaN to infinity
  EXPECT_EQ(f32_to_bf16(float_of(0x0000ffff)), 0x0001);  // subnormals round too
}

static_assert(f32_to_f16(1.0f) == 0x3c00 && f16_to_f32(0x3555) < 0.3334f, "usable in constant expressions");

}  // namespace
}  // namespace isthmus
