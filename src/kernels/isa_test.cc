#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/float_kernels.h"
#include "kernels/linear_kernels.h"
#include "os/cpu.h"

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

TEST(Isa, TheModelOfTilesIsNeverChosenButMayBeNamed) {
  for (const Isa isa : available_isas()) EXPECT_NE(isa, Isa::kAmxModel);
  EXPECT_EQ(testable_isas().back(), available_isas().back());
  const auto& all = testable_isas();
  const bool has_avx512 = std::ranges::find(all, Isa::kAvx512Vnni) != all.end();
  EXPECT_EQ(std::ranges::find(all, Isa::kAmxModel) != all.end(), has_avx512);
  const auto parsed = parse_isa("amx-model");
  EXPECT_EQ(parsed.ok(), has_avx512);
  const auto unknown = parse_isa("mmx");
  EXPECT_EQ(unknown.status().message().find("amx-model"), std::string::npos) << "not an offer";
}

TEST(Isa, TilesNeedTheSystemsLeave) {
  const bool has_tiles = std::ranges::find(available_isas(), Isa::kAmx) != available_isas().end();
  if (has_tiles) {
    EXPECT_TRUE(os::allow_tiles());
    EXPECT_EQ(available_isas().back(), Isa::kAmx);
  } else {
    EXPECT_FALSE(parse_isa("amx").ok());
  }
}

// Every set has a table of its own name, and only those with tiles have strips.
TEST(Isa, TablesFitTheirNames) {
  for (const Isa isa : testable_isas()) {
    const LinearKernels& table = linear_kernels_for(isa);
    EXPECT_EQ(table.isa, isa);
    const bool tiles = isa == Isa::kAmx || isa == Isa::kAmxModel;
    EXPECT_EQ(table.strip_tokens, tiles ? kStripTokens : kMaxTokens);
    for (const auto& format : table.dot_tiles) EXPECT_EQ(format[1] != nullptr, tiles);
    if (tiles) {
      EXPECT_EQ(&float_kernels_for(isa), &float_kernels_for(Isa::kAvx512Vnni));
    }
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
  for (const Isa isa : testable_isas()) {
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
