#include "os/mmap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace isthmus {
namespace {

namespace fs = std::filesystem;

std::string temp_file(const std::string& name, const std::string& contents) {
  const auto path = (fs::path(testing::TempDir()) / name).string();
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

TEST(MappedFile, ShowsTheBytesAndTheIdentity) {
  const std::string contents(10'000, 'q');
  const auto path = temp_file("isthmus_mmap_a", contents);
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()), contents);
  EXPECT_EQ(file->identity(), file_identity(path).value());
  EXPECT_EQ(file->identity().size, contents.size());
  for (const auto advice :
       {MappedFile::Advice::kSequential, MappedFile::Advice::kRandom, MappedFile::Advice::kNormal,
        MappedFile::Advice::kWillNeed, MappedFile::Advice::kDrop}) {
    EXPECT_TRUE(file->advise(advice, 5000, 1u << 30).ok());
  }
  EXPECT_TRUE(file->advise(MappedFile::Advice::kDrop, 20'000, 1).ok());  // beyond the end: nothing to do
  EXPECT_EQ(file->bytes()[9'999], std::byte{'q'});                       // dropped pages come back
  MappedFile moved = std::move(file).value();
  EXPECT_EQ(moved.bytes().size(), contents.size());
  fs::remove(path);
}

TEST(MappedFile, AChangedFileHasAnotherIdentity) {
  const auto path = temp_file("isthmus_mmap_b", "one");
  const auto before = file_identity(path).value();
  fs::remove(path);
  temp_file("isthmus_mmap_b", "three");
  EXPECT_NE(file_identity(path).value(), before);
  fs::remove(path);
}

TEST(MappedFile, EmptyMissingAndOddFiles) {
  const auto path = temp_file("isthmus_mmap_c", "");
  EXPECT_EQ(MappedFile::open(path).value().bytes().size(), 0u);
  fs::remove(path);
  EXPECT_EQ(MappedFile::open(path).status().code(), Code::kNotFound);
  EXPECT_EQ(MappedFile::open("/dev/zero").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MappedFile::open("/").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(file_identity(path).status().code(), Code::kNotFound);
}

TEST(HugeArena, IsAlignedZeroedAndReleasable) {
  auto arena = HugeArena::allocate(HugeArena::kPageBytes + 1);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->size(), 2 * HugeArena::kPageBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % HugeArena::kPageBytes, 0u);
  const std::span all(arena->data(), arena->size());
  EXPECT_TRUE(std::ranges::all_of(all, [](std::byte b) { return b == std::byte{0}; }));
  std::ranges::fill(all, std::byte{7});
  ASSERT_TRUE(arena->release(100, 4096 * 3).ok());  // two whole pages lie inside
  EXPECT_EQ(all[4095], std::byte{7});
  EXPECT_EQ(all[4096], std::byte{0});
  EXPECT_EQ(all[4096 * 3 - 1], std::byte{0});
  EXPECT_EQ(all[4096 * 3], std::byte{7});
  EXPECT_EQ(arena->release(0, arena->size() + 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(arena->release(SIZE_MAX, 2).code(), Code::kInvalidArgument);
}

TEST(HugeArena, RefusesTheImpossibleAndMoves) {
  EXPECT_EQ(HugeArena::allocate(SIZE_MAX).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(HugeArena::allocate(SIZE_MAX - HugeArena::kPageBytes).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(HugeArena::allocate(0).value().size(), 0u);
  HugeArena a = HugeArena::allocate(1).value();
  std::byte* data = a.data();
  HugeArena b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: the moved-from state is defined
}

}  // namespace
}  // namespace isthmus
