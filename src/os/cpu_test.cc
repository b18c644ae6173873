#include "os/cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
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

TEST(Memory, ThePeakFollowsWhatIsTouchedAndCanBeSetBack) {
  const auto touch = [](size_t bytes) {
    const std::vector<char> block(bytes, 1);
    volatile const char* last = &block.back();  // or the compiler leaves the block out
    EXPECT_EQ(*last, 1);
  };
  touch(size_t{128} << 20);
  ASSERT_TRUE(reset_peak_resident());
  const uint64_t before = peak_resident_bytes();
  touch(size_t{64} << 20);
  // The kernel adds a thread's latest pages to its counters in batches.
  EXPECT_GE(peak_resident_bytes(), before + (size_t{60} << 20));
  // A sanitizer keeps memory of its own beside each byte that is touched.
  const bool sanitized = std::getenv("ISTHMUS_SANITIZED") != nullptr;
  EXPECT_LE(peak_resident_bytes(), before + (size_t{96} << 20) * (sanitized ? 8 : 1));
  const uint64_t now = resident_bytes();
  EXPECT_GT(now, size_t{1} << 20);
  EXPECT_LE(now, peak_resident_bytes() + (size_t{1} << 20));
  EXPECT_GT(memory_info().total_bytes, memory_info().available_bytes);
}

TEST(Cpu, LeaveForTilesIsAskedAnyNumberOfTimes) {
  const bool first = allow_tiles();
  EXPECT_EQ(allow_tiles(), first);
  std::ifstream in("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(first, text.find(" amx_tile") != std::string::npos);
}

}  // namespace
}  // namespace isthmus::os
