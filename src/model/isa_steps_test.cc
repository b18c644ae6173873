// Steps of the largest size a workspace takes, on every instruction set: the sizes of records differ among
// sets and classes, the bits do not. Each set needs a fresh process.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/isa.h"
#include "model/testing/harness.h"

namespace isthmus {
namespace {

using testing::Harness;
using testing::some_tokens;

uint64_t hash_of(const std::vector<float>& values) {
  uint64_t hash = 14695981039346656037U;
  for (const float value : values) hash = (hash ^ __builtin_bit_cast(uint32_t, value)) * 1099511628211U;
  return hash;
}

/// Ends the process: 0 when a whole step and the same tokens in small steps agree; leaves their hash in
/// `path`.
[[noreturn]] void run_steps(Isa isa, const char* name, Compute compute, const std::string& path) {
  setenv("ISTHMUS_ISA", std::string(isa_name(isa)).c_str(), 1);
  const auto active = active_isa();
  if (!active.ok() || *active != isa) std::exit(2);
  Harness h(name, Compute::kInt16, 1024, 2, KvType::kF16);
  const auto tokens = some_tokens(h.workspace->shape().max_tokens, 3);
  const auto whole = h.run_fresh(tokens, compute);
  KvSequence kv = h.model->make_sequence(h.blocks);
  std::vector<float> parts;
  for (size_t first = 0; first < tokens.size();) {
    const size_t n = std::min<size_t>(tokens.size() - first, first % 2 == 0 ? 7 : 180);
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(first);
    const auto got = h.run(kv, {begin, begin + static_cast<ptrdiff_t>(n)}, compute);
    parts.insert(parts.end(), got.begin(), got.end());
    first += n;
  }
  std::ofstream(path) << hash_of(whole);
  std::exit(whole == parts ? 0 : 1);
}

class IsaStepsDeathTest : public ::testing::TestWithParam<std::tuple<const char*, Compute>> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(IsaStepsDeathTest, FullStepsHaveTheSameBitsOnEverySet) {
  const auto [name, compute] = GetParam();
  std::string expected;
  for (const Isa isa : available_isas()) {
    const std::string path = ::testing::TempDir() + "isthmus_steps_" + name + "_" +
                             std::to_string(static_cast<int>(compute)) + "_" + std::string(isa_name(isa));
    std::filesystem::remove(path);
    EXPECT_EXIT(run_steps(isa, name, compute, path), ::testing::ExitedWithCode(0), "") << isa_name(isa);
    std::string hash;
    std::ifstream(path) >> hash;
    std::filesystem::remove(path);
    EXPECT_FALSE(hash.empty()) << isa_name(isa);
    if (expected.empty()) expected = hash;
    EXPECT_EQ(hash, expected) << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, IsaStepsDeathTest,
                         ::testing::Combine(::testing::Values("type-q4_k.gguf", "llama.gguf", "gemma3.gguf"),
                                            ::testing::Values(Compute::kInt8, Compute::kInt16)));

}  // namespace
}  // namespace isthmus
