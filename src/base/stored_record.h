// The envelope of what is kept below memory: keys, parent, whose it is, checksums; and the data, of any kind.
//
// Bytes to values and back; docs/formats/kv-record.md is the format's page. What is parsed is untrusted:
// bounds-checked, with limits, and refused unless every byte is as it must be, so that a record that parses
// encodes to the same bytes. Pure, any thread. Errors: kCorrupt; kUnsupported (another version).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/status.h"

namespace isthmus {

/// Data is checked in pieces of this many bytes.
inline constexpr uint64_t kRecordPieceBytes = uint64_t{64} << 10;
/// The data begin at a multiple of this.
inline constexpr uint64_t kRecordAlign = 64;
inline constexpr uint64_t kMaxRecordData = uint64_t{1} << 30;
inline constexpr uint64_t kMaxRecordHead = uint64_t{1} << 20;
inline constexpr size_t kMaxRecordKeys = 64;
inline constexpr size_t kMaxRecordLabel = 256;
inline constexpr size_t kMaxRecordDescription = size_t{64} << 10;
/// As much of a record's start as record_size() needs.
inline constexpr size_t kRecordStartBytes = 32;

struct RecordHead {
  std::string label;                   // for people: the model's name
  Digest identity{};                   // whose the data are: model, build
  Digest parent{};                     // the key that comes before keys[0]
  std::vector<Digest> keys;            // of the parts of the data, in order, at least one
  uint32_t first_token = 0;            // of the text that the data belong to
  uint32_t tokens = 0;                 // in the data
  std::vector<std::byte> description;  // what the data are, for those who use them
  bool operator==(const RecordHead&) const = default;
};

/// The name of a record: its last key.
inline const Digest& record_name(const RecordHead& head) { return head.keys.back(); }

/// Bytes of a record with this head.
uint64_t record_head_bytes(const RecordHead& head, uint64_t data_bytes);

/// Makes a record in one buffer.
class RecordWriter {
 public:
  /// The head's parts must be within the limits above.
  RecordWriter(RecordHead head, uint64_t data_bytes);
  /// To be filled.
  std::span<std::byte> data() { return std::span(bytes_).subspan(head_bytes_); }
  /// The whole record. Once.
  std::vector<std::byte> finish();

 private:
  RecordHead head_;
  size_t head_bytes_;
  std::vector<std::byte> bytes_;
};

struct RecordSize {
  uint64_t head = 0;
  uint64_t data = 0;
  uint64_t total() const { return head + data; }
};

/// From the first kRecordStartBytes of a record (or more).
Result<RecordSize> record_size(std::span<const std::byte> start);

/// `bytes` is the whole head, or begins with it; the data are not looked at.
Result<RecordHead> parse_record_head(std::span<const std::byte> bytes);

struct StoredRecord {
  RecordHead head;
  std::span<const std::byte> data;  // inside the bytes that were parsed
};

/// `bytes` is the whole record and nothing behind it; every checksum is compared.
Result<StoredRecord> parse_record(std::span<const std::byte> bytes);

}  // namespace isthmus
