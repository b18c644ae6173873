#include "base/stored_record.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/xxh3.h"

namespace isthmus {
namespace {

constexpr std::string_view kRecordMagic = "ISTHKVRC";
constexpr uint32_t kRecordVersion = 1;
constexpr size_t kRecordSumAt = 8;
constexpr size_t kRecordSummedFrom = 16;
/// Bytes before the keys.
constexpr uint64_t kRecordFixed = 120;

uint64_t record_pieces(uint64_t data_bytes) {
  return (data_bytes + kRecordPieceBytes - 1) / kRecordPieceBytes;
}

std::span<const std::byte> record_piece(std::span<const std::byte> data, uint64_t index) {
  const uint64_t at = index * kRecordPieceBytes;
  return data.subspan(at, std::min<uint64_t>(kRecordPieceBytes, data.size() - at));
}

uint64_t head_bytes_for(uint64_t keys, uint64_t label, uint64_t description, uint64_t data_bytes) {
  return round_up<uint64_t>(
      kRecordFixed + keys * sizeof(Digest) + label + description + 8 * record_pieces(data_bytes),
      kRecordAlign);
}

/// Writes into a buffer that is large enough.
class RecordCursor {
 public:
  explicit RecordCursor(std::span<std::byte> out) : out_(out) {}
  void bytes(std::span<const std::byte> value) {
    std::copy(value.begin(), value.end(), out_.begin() + static_cast<ptrdiff_t>(at_));
    at_ += value.size();
  }
  void text(std::string_view value) { bytes(std::as_bytes(std::span(value))); }
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }

 private:
  std::span<std::byte> out_;
  size_t at_ = 0;
};

struct RecordSizes {
  RecordSize size;
  uint32_t keys = 0;
  uint32_t label = 0;
  uint32_t description = 0;
};

bool within_limits(const RecordSizes& s) {
  return s.size.data <= kMaxRecordData && s.size.head <= kMaxRecordHead;
}

/// Magic, version and sizes; the reader then stands behind them, at the checksum's end.
Result<RecordSize> read_start(ByteReader& reader) {
  const auto magic = reader.take_text(kRecordMagic.size());
  if (!magic || *magic != kRecordMagic) return corrupt("not a KV record: its first bytes are others");
  (void)reader.skip(8);
  const auto version = reader.read<uint32_t>();
  const auto head = reader.read<uint32_t>();
  const auto data = reader.read<uint64_t>();
  if (!version || !head || !data) return corrupt("the KV record is cut");
  if (*version != kRecordVersion) {
    return unsupported("the KV record has format version " + std::to_string(*version) + ", known is " +
                       std::to_string(kRecordVersion));
  }
  const RecordSizes sizes{{*head, *data}, 0, 0, 0};
  if (!within_limits(sizes) || *head < kRecordFixed) return corrupt("the KV record's sizes are out of range");
  return sizes.size;
}

bool read_digest(ByteReader& reader, Digest& out) {
  const auto bytes = reader.take(out.size());
  if (bytes) std::copy(bytes->begin(), bytes->end(), out.begin());
  return bytes.has_value();
}

struct ParsedHead {
  RecordHead head;
  RecordSize size;
  std::vector<uint64_t> checksums;
};

Status read_variable_part(ByteReader& reader, const RecordSizes& sizes, ParsedHead& out) {
  RecordHead& head = out.head;
  bool whole = read_digest(reader, head.identity) && read_digest(reader, head.parent);
  head.keys.resize(sizes.keys);
  for (Digest& key : head.keys) whole = whole && read_digest(reader, key);
  const auto label = reader.take_text(sizes.label);
  const auto description = reader.take(sizes.description);
  if (!whole || !label || !description) return corrupt("the head of the KV record is cut");
  head.label = *label;
  head.description.assign(description->begin(), description->end());
  out.checksums.resize(record_pieces(sizes.size.data));
  for (uint64_t& sum : out.checksums) {
    const auto value = reader.read<uint64_t>();
    if (!value) return corrupt("the head of the KV record is cut");
    sum = *value;
  }
  const auto rest = reader.take(reader.remaining());
  const bool zero = std::all_of(rest->begin(), rest->end(), [](std::byte b) { return b == std::byte{0}; });
  return zero ? ok_status() : corrupt("the head of the KV record does not end in zeros");
}

Result<ParsedHead> parse_head(std::span<const std::byte> bytes) {
  ByteReader start(bytes);
  ParsedHead out;
  ISTHMUS_ASSIGN_OR_RETURN(out.size, read_start(start));
  if (bytes.size() < out.size.head) return corrupt("the head of the KV record is cut");
  ByteReader reader(bytes.first(out.size.head));
  (void)reader.skip(kRecordSumAt);
  const auto sum = reader.read<uint64_t>();
  if (!sum || *sum != xxh3_64(bytes.first(out.size.head).subspan(kRecordSummedFrom))) {
    return corrupt("wrong checksum of the head of the KV record");
  }
  (void)reader.skip(kRecordStartBytes - kRecordSummedFrom);
  RecordSizes sizes{out.size, 0, 0, 0};
  const auto keys = reader.read<uint32_t>();
  const auto label = reader.read<uint32_t>();
  const auto description = reader.read<uint32_t>();
  const auto first_token = reader.read<uint32_t>();
  const auto tokens = reader.read<uint32_t>();
  const auto zero = reader.read<uint32_t>();
  sizes.keys = keys.value_or(0);
  sizes.label = label.value_or(0);
  sizes.description = description.value_or(0);
  const bool sized =
      sizes.keys > 0 && sizes.keys <= kMaxRecordKeys && sizes.label <= kMaxRecordLabel &&
      sizes.description <= kMaxRecordDescription && zero.value_or(1) == 0 &&
      out.size.head == head_bytes_for(sizes.keys, sizes.label, sizes.description, out.size.data);
  if (!sized) return corrupt("the KV record's head does not add up");
  out.head.first_token = first_token.value_or(0);
  out.head.tokens = tokens.value_or(0);
  ISTHMUS_RETURN_IF_ERROR(read_variable_part(reader, sizes, out));
  return out;
}

}  // namespace

uint64_t record_head_bytes(const RecordHead& head, uint64_t data_bytes) {
  return head_bytes_for(head.keys.size(), head.label.size(), head.description.size(), data_bytes);
}

RecordWriter::RecordWriter(RecordHead head, uint64_t data_bytes)
    : head_(std::move(head)),
      head_bytes_(static_cast<size_t>(record_head_bytes(head_, data_bytes))),
      bytes_(head_bytes_ + static_cast<size_t>(data_bytes)) {}

std::vector<std::byte> RecordWriter::finish() {
  const std::span<const std::byte> filled = data();
  RecordCursor out(bytes_);
  out.text(kRecordMagic);
  out.number(uint64_t{0});  // the checksum
  out.number(kRecordVersion);
  out.number(static_cast<uint32_t>(head_bytes_));
  out.number(uint64_t{filled.size()});
  for (const size_t value : {head_.keys.size(), head_.label.size(), head_.description.size()}) {
    out.number(static_cast<uint32_t>(value));
  }
  for (const uint32_t value : {head_.first_token, head_.tokens, uint32_t{0}}) out.number(value);
  out.bytes(head_.identity);
  out.bytes(head_.parent);
  for (const Digest& key : head_.keys) out.bytes(key);
  out.text(head_.label);
  out.bytes(head_.description);
  for (uint64_t i = 0; i < record_pieces(filled.size()); ++i) out.number(xxh3_64(record_piece(filled, i)));
  const uint64_t sum = xxh3_64(std::span(bytes_).first(head_bytes_).subspan(kRecordSummedFrom));
  std::memcpy(bytes_.data() + kRecordSumAt, &sum, sizeof(sum));
  return std::move(bytes_);
}

Result<RecordSize> record_size(std::span<const std::byte> start) {
  ByteReader reader(start);
  return read_start(reader);
}

Result<RecordHead> parse_record_head(std::span<const std::byte> bytes) {
  ISTHMUS_ASSIGN_OR_RETURN(ParsedHead parsed, parse_head(bytes));
  return std::move(parsed.head);
}

Result<StoredRecord> parse_record(std::span<const std::byte> bytes) {
  ISTHMUS_ASSIGN_OR_RETURN(ParsedHead parsed, parse_head(bytes));
  if (parsed.size.total() != bytes.size()) {
    return corrupt("the KV record has " + std::to_string(bytes.size()) + " bytes, its head says " +
                   std::to_string(parsed.size.total()));
  }
  const auto data = bytes.subspan(parsed.size.head);
  for (size_t i = 0; i < parsed.checksums.size(); ++i) {
    if (xxh3_64(record_piece(data, i)) != parsed.checksums[i]) {
      return corrupt("wrong checksum of the KV record's data at " + std::to_string(i * kRecordPieceBytes));
    }
  }
  return StoredRecord{std::move(parsed.head), data};
}

}  // namespace isthmus
