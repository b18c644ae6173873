#include "kv/kv_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/xxh3.h"

namespace isthmus {
namespace {

constexpr std::string_view kKvFileMagic = "ISTHKVFS";
constexpr uint32_t kKvFileVersion = 1;
constexpr size_t kKvFileSumAt = 8;
constexpr size_t kKvFileSummedFrom = 16;

/// The number of records.
Result<uint32_t> read_kv_file_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kKvFileHeadBytes) return corrupt("the KV file is cut");
  const auto head = bytes.first(kKvFileHeadBytes);
  ByteReader reader(head);
  const auto magic = reader.take_text(kKvFileMagic.size());
  if (*magic != kKvFileMagic) return corrupt("not a KV file: its first bytes are others");
  const auto sum = reader.read<uint64_t>();
  const auto version = reader.read<uint32_t>();
  const auto records = reader.read<uint32_t>();
  const auto total = reader.read<uint64_t>();
  if (*version != kKvFileVersion) {
    return unsupported("the KV file has format version " + std::to_string(*version) + ", known is " +
                       std::to_string(kKvFileVersion));
  }
  if (*sum != xxh3_64(head.subspan(kKvFileSummedFrom)))
    return corrupt("wrong checksum of the KV file's head");
  const auto rest = *reader.take(reader.remaining());
  const bool zero = std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
  if (!zero || *records == 0 || *records > kMaxKvFileRecords) {
    return corrupt("the KV file's head is out of range");
  }
  if (*total != bytes.size()) {
    return corrupt("the KV file has " + std::to_string(bytes.size()) + " bytes, its head says " +
                   std::to_string(*total));
  }
  return *records;
}

}  // namespace

std::vector<std::byte> encode_kv_file_head(size_t records, uint64_t bytes) {
  std::vector<std::byte> out(kKvFileHeadBytes);
  std::memcpy(out.data(), kKvFileMagic.data(), kKvFileMagic.size());
  const auto count = static_cast<uint32_t>(records);
  const uint64_t total = bytes + kKvFileHeadBytes;
  std::memcpy(out.data() + 16, &kKvFileVersion, sizeof(kKvFileVersion));
  std::memcpy(out.data() + 20, &count, sizeof(count));
  std::memcpy(out.data() + 24, &total, sizeof(total));
  const uint64_t sum = xxh3_64(std::span(out).subspan(kKvFileSummedFrom));
  std::memcpy(out.data() + kKvFileSumAt, &sum, sizeof(sum));
  return out;
}

Result<std::vector<KvFileRecord>> parse_kv_file(std::span<const std::byte> bytes, DigestFunction digest) {
  ISTHMUS_ASSIGN_OR_RETURN(const uint32_t count, read_kv_file_head(bytes));
  std::vector<KvFileRecord> out;
  auto rest = bytes.subspan(kKvFileHeadBytes);
  for (uint32_t i = 0; i < count; ++i) {
    ISTHMUS_ASSIGN_OR_RETURN(const RecordSize size, record_size(rest));
    if (size.total() > rest.size()) return corrupt("the KV file is cut");
    const auto record_bytes = rest.first(size.total());
    rest = rest.subspan(size.total());
    ISTHMUS_ASSIGN_OR_RETURN(KvRecord record, KvRecord::parse(record_bytes));
    ISTHMUS_RETURN_IF_ERROR(record.check_keys(digest));
    const bool follows = out.empty() ? record.first_block() == 0
                                     : record.head().parent == out.back().record.head().keys.back() &&
                                           record.space() == out.back().record.space() &&
                                           record.first_block() ==
                                               out.back().record.first_block() + out.back().record.blocks();
    if (!follows) return corrupt("the records of the KV file do not follow each other");
    out.push_back({std::move(record), record_bytes});
  }
  if (!rest.empty()) return corrupt("the KV file has more bytes than its records");
  return out;
}

}  // namespace isthmus
