#include "os/cpu.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace isthmus::os {
namespace {

TEST(Cpu, CountsAreSane) {
  EXPECT_GE(usable_cpus(), 1U);
  EXPECT_LE(usable_cpus(), allowed_cpus().size());
  EXPECT_FALSE(cpu_info().model_name.empty());
}

TEST(Cpu, PinningConfinesTheThread) {
  const int cpu = allowed_cpus().back();
  bool pinned = false;
  std::vector<int> after;
  std::thread([&] {
    pinned = pin_this_thread(cpu);
    after = allowed_cpus();
  }).join();
  ASSERT_TRUE(pinned);
  EXPECT_EQ(after, std::vector<int>{cpu});
  EXPECT_FALSE(pin_this_thread(-1));
}

TEST(Memory, ResidentFollowsWhatIsTouched) {
  const uint64_t before = resident_bytes();
  std::vector<char> block(64 << 20, 1);
  EXPECT_GE(resident_bytes(), before + (48U << 20));
  const uint64_t now = resident_bytes();
  // The kernel adds a thread's latest pages to its counters in batches.
  EXPECT_GE(peak_resident_bytes() + (1 << 20), now);
  EXPECT_GT(memory_info().total_bytes, memory_info().available_bytes);
}

}  // namespace
}  // namespace isthmus::os
