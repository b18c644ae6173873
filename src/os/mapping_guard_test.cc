#include "os/mapping_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "os/mmap.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;

class TruncatedFile : public testing::Test {
 protected:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kPages = 40;

  std::string make(const std::string& name) {
    const auto path = (fs::path(testing::TempDir()) / ("isthmus_guard_" + name)).string();
    std::ofstream(path, std::ios::binary) << std::string(kPages * kPage, 'x');
    paths_.push_back(path);
    return path;
  }
  ~TruncatedFile() override {
    for (const auto& path : paths_) fs::remove(path);
  }

  std::vector<std::string> paths_;
};

using TruncatedFileDeathTest = TruncatedFile;

TEST_F(TruncatedFile, LostPagesReadAsZerosAndTheMappingSaysSo) {
  const auto path = make("lost");
  const auto file = MappedFile::open(path).value();
  const auto other = MappedFile::open(make("other")).value();
  ASSERT_TRUE(file.intact().ok());
  fs::resize_file(path, 2 * kPage);
  EXPECT_EQ(file.bytes()[5 * kPage], std::byte{0});
  EXPECT_EQ(file.bytes()[3 * kPage], std::byte{0});  // before the first one that was touched
  EXPECT_EQ(file.bytes().back(), std::byte{0});
  EXPECT_EQ(file.bytes()[kPage], std::byte{'x'});
  EXPECT_EQ(file.intact().code(), Code::kCorrupt);
  EXPECT_NE(file.intact().message().find(path + "' was truncated while in use"), std::string::npos);
  EXPECT_TRUE(other.intact().ok());
  EXPECT_EQ(other.bytes()[5 * kPage], std::byte{'x'});
}

TEST_F(TruncatedFile, ALossInsideAPageIsFoundToo) {
  const auto path = make("tail");
  const auto file = MappedFile::open(path).value();
  fs::resize_file(path, kPages * kPage - 1);
  EXPECT_EQ(file.bytes().back(), std::byte{0});  // without a signal
  EXPECT_EQ(file.intact().code(), Code::kCorrupt);
}

TEST_F(TruncatedFile, DamageStaysWhenTheFileGrowsAgain) {
  const auto path = make("again");
  const auto file = MappedFile::open(path).value();
  fs::resize_file(path, 0);
  EXPECT_EQ(file.bytes()[0], std::byte{0});
  fs::resize_file(path, kPages * kPage);
  EXPECT_EQ(file.intact().code(), Code::kCorrupt);
  // A new mapping in the same slot of the table starts clean.
  EXPECT_TRUE(MappedFile::open(path).value().intact().ok());
}

TEST_F(TruncatedFile, ReadingTellsWhatIsMissing) {
  const auto path = make("read");
  const auto file = MappedFile::open(path).value();
  std::array<std::byte, 100> bytes{};
  ASSERT_TRUE(file.read_at(3 * kPage - 50, bytes).ok());
  EXPECT_EQ(bytes[99], std::byte{'x'});
  EXPECT_EQ(file.read_at(kPages * kPage - 99, bytes).code(), Code::kInvalidArgument);
  EXPECT_EQ(file.read_at(UINT64_MAX, bytes).code(), Code::kInvalidArgument);
  fs::resize_file(path, 3 * kPage);
  EXPECT_EQ(file.read_at(3 * kPage - 50, bytes).code(), Code::kCorrupt);
  EXPECT_TRUE(file.read_at(0, bytes).ok());
}

TEST_F(TruncatedFile, ManyThreadsMeetTheLossAtOnce) {
  const auto path = make("threads");
  const auto file = MappedFile::open(path).value();
  fs::resize_file(path, kPage);
  std::vector<std::thread> threads;
  std::array<unsigned, 4> sums{};
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t page = kPages - 1; page > t; --page) {
        sums[t] += std::to_integer<unsigned>(file.bytes()[page * kPage + t]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sums, (std::array<unsigned, 4>{}));
  EXPECT_EQ(file.intact().code(), Code::kCorrupt);
}

/// In a fresh process: `handler` is there before the guard, then `strike` is called with a guarded file open.
template <class Strike>
void with_earlier_handler(void (*handler)(int), const std::string& path, Strike strike) {
  ::signal(SIGBUS, handler);
  const auto file = MappedFile::open(path);
  strike();
}

TEST_F(TruncatedFileDeathTest, ASignalThatIsNotOursGoesOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto path = make("chain");
  const auto leave = [](int) { ::_exit(77); };
  const auto raise_bus = [] { ::raise(SIGBUS); };
  EXPECT_EXIT(with_earlier_handler(leave, path, raise_bus), testing::ExitedWithCode(77), "");
  EXPECT_EXIT(with_earlier_handler(SIG_DFL, path, raise_bus), testing::KilledBySignal(SIGBUS), "");
  // A page that nobody registered.
  const auto touch_lost = [this] {
    const auto lost = make("lost_elsewhere");
    const int fd = ::open(lost.c_str(), O_RDONLY);
    const auto* data =
        static_cast<const volatile char*>(::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0));
    fs::resize_file(lost, 0);
    ::_exit(data[0]);
  };
  EXPECT_EXIT(with_earlier_handler(leave, path, touch_lost), testing::ExitedWithCode(77), "");
  EXPECT_EXIT(with_earlier_handler(SIG_DFL, path, touch_lost), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace isthmus
