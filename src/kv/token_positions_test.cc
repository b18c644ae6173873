#include "kv/token_positions.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

TEST(TokenPositionsTest, WithoutGapsAPlaceIsAPosition) {
  TokenPositions p;
  EXPECT_FALSE(p.gaps());
  EXPECT_EQ(p.of(7), 7U);
  EXPECT_EQ(p.first_from(7), 7U);
  p.jump(3, 3);
  EXPECT_FALSE(p.gaps());
}

TEST(TokenPositionsTest, AgreesWithAList) {
  TokenPositions p;
  p.jump(0, 2);  // the text begins at position 2
  p.jump(4, 6);  // no gap
  p.jump(5, 20);
  p.jump(8, 23);  // no gap
  p.jump(9, 24);
  p.jump(10, 40);
  const size_t want[] = {2, 3, 4, 5, 6, 20, 21, 22, 23, 24, 40, 41};
  for (size_t token = 0; token < 12; ++token) EXPECT_EQ(p.of(token), want[token]);
  for (size_t position = 0; position < 45; ++position) {
    size_t first = 0;
    while (p.of(first) < position) ++first;
    EXPECT_EQ(p.first_from(position), first) << position;
  }
}

TEST(TokenPositionsTest, CuttingKeepsTheJumpOfTheNextToken) {
  TokenPositions p;
  p.jump(5, 20);
  p.jump(9, 50);
  p.cut(9);
  EXPECT_EQ(p.of(9), 50U);
  p.cut(8);
  EXPECT_EQ(p.of(9), 24U);
  p.cut(5);
  EXPECT_EQ(p.of(5), 20U);
  p.jump(5, 30);
  EXPECT_EQ(p.of(5), 30U);
  EXPECT_EQ(p.first_from(6), 5U);
  p.cut(4);
  EXPECT_FALSE(p.gaps());
}

}  // namespace
}  // namespace isthmus
