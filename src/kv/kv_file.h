// A KV file: the records of one text, from its first token on, one after another, to be taken elsewhere.
//
// docs/formats/kv-record.md has its bytes. A file is good as a whole or refused as a whole: every checksum,
// every key, and that the records follow each other without a gap. Values; any thread. Errors: kCorrupt,
// kUnsupported (another version).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kv/kv_record.h"

namespace isthmus {

inline constexpr size_t kKvFileHeadBytes = 64;
inline constexpr size_t kMaxKvFileRecords = size_t{1} << 16;

/// What stands before `records` records of `bytes` bytes in all.
std::vector<std::byte> encode_kv_file_head(size_t records, uint64_t bytes);

struct KvFileRecord {
  KvRecord record;
  std::span<const std::byte> bytes;  // of the whole record, inside the file
};

/// `bytes` is the whole file and outlives the result, which is not empty.
Result<std::vector<KvFileRecord>> parse_kv_file(std::span<const std::byte> bytes, DigestFunction digest);

}  // namespace isthmus
