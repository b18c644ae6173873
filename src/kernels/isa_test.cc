#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace isthmus {
namespace {

TEST(Isa, ScalarIsAlwaysThereAndFirst) {
  ASSERT_FALSE(available_isas().empty());
  EXPECT_EQ(available_isas().front(), Isa::kScalar);
}

TEST(Isa, EveryAvailableSetHasANameThatParsesBack) {
  for (const Isa isa : available_isas()) {
    const auto parsed = parse_isa(isa_name(isa));
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed.value(), isa);
  }
}

TEST(Isa, AnUnknownNameListsWhatWouldDo) {
  const auto parsed = parse_isa("mmx");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
  EXPECT_NE(parsed.status().message().find("'mmx'"), std::string::npos);
  EXPECT_NE(parsed.status().message().find("scalar"), std::string::npos);
}

TEST(Isa, AnotherMachinesSetIsRefused) {
#if defined(__x86_64__)
  const auto parsed = parse_isa("neon");
#else
  const auto parsed = parse_isa("avx2");
#endif
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("does not have"), std::string::npos);
}

// Each choice is made once in a process, so each forced set is tried in a fresh one.
TEST(IsaDeathTest, TheEnvironmentForcesASet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Isa isa : available_isas()) {
    EXPECT_EXIT(
        {
          setenv("ISTHMUS_ISA", std::string(isa_name(isa)).c_str(), 1);
          const auto active = active_isa();
          std::exit(active.ok() && active.value() == isa ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
  }
  EXPECT_EXIT(
      {
        setenv("ISTHMUS_ISA", "mmx", 1);
        std::exit(active_isa().status().code() == Code::kInvalidArgument ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace isthmus
