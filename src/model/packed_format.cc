#include "model/packed_format.h"

#include <cstring>
#include <string_view>

#include "base/byte_reader.h"
#include "base/checked.h"

namespace isthmus {
namespace {

constexpr std::string_view kMagic = "ISTHPACK";
constexpr uint32_t kVersion = 1;
constexpr size_t kChecksumAt = 8;
constexpr size_t kCheckedFrom = 16;
constexpr size_t kHeadBytesAt = 32;
constexpr uint64_t kMaxParts = 1 << 16;
constexpr uint64_t kMaxDataBytes = uint64_t{1} << 46;
constexpr uint64_t kPartBytes = uint64_t{7} * 8;

uint64_t pieces_of(uint64_t data_bytes) { return (data_bytes + kPackedPieceBytes - 1) / kPackedPieceBytes; }

class Writer {
 public:
  void text(std::string_view value) {
    const auto bytes = std::as_bytes(std::span(value));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  void u32(uint64_t value) { number(value, 4); }
  void u64(uint64_t value) { number(value, 8); }
  void set_u64(size_t at, uint64_t value) { std::memcpy(out.data() + at, &value, sizeof(value)); }

  std::vector<std::byte> out;

 private:
  void number(uint64_t value, size_t width) {
    for (size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
};

/// Reads numbers until one is missing; then all are 0 and failed() says so.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : reader_(bytes) {}
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  std::string text(uint64_t length) {
    const auto got = failed_ ? std::nullopt : reader_.take_text(length);
    failed_ = !got;
    return got ? std::string(*got) : std::string();
  }
  /// Whether `count` things of at least `bytes` each can still follow.
  bool fits(uint64_t count, uint64_t bytes) const { return count <= reader_.remaining() / bytes; }
  bool rest_is_zero() {
    const auto rest = *reader_.take(reader_.remaining());
    for (const std::byte b : rest) {
      if (b != std::byte{0}) return false;
    }
    return true;
  }
  bool failed() const { return failed_; }

 private:
  template <class T>
  T number() {
    const auto got = failed_ ? std::nullopt : reader_.read<T>();
    failed_ = !got;
    return got.value_or(0);
  }
  ByteReader reader_;
  bool failed_ = false;
};

void read_parts(Fields& in, uint64_t count, std::vector<PackedPart>& out) {
  for (uint64_t i = 0; i < count; ++i) {
    PackedPart part;
    part.identity.device = in.u64();
    part.identity.inode = in.u64();
    part.identity.size = in.u64();
    part.identity.modified_ns = static_cast<int64_t>(in.u64());
    part.identity.changed_ns = static_cast<int64_t>(in.u64());
    part.head.low = in.u64();
    part.head.high = in.u64();
    out.push_back(part);
  }
}

/// The entries must lie in the data one after another, as they are written.
Status read_entries(Fields& in, uint64_t count, PackedKey& key) {
  uint64_t end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    PackedEntry entry;
    entry.tensor = in.text(in.u32());
    const uint32_t kind = in.u32();
    entry.vector = kind == 1;
    entry.type = in.u32();
    entry.first_row = in.u64();
    entry.rows = in.u64();
    entry.cols = in.u64();
    entry.offset = in.u64();
    entry.bytes = in.u64();
    const auto next = checked_add(entry.offset, entry.bytes);
    if (in.failed() || kind > 1 || entry.offset < end || !next || *next > key.data_bytes) {
      return corrupt("entry " + std::to_string(i) + " of the packed cache is out of range");
    }
    end = *next;
    key.entries.push_back(std::move(entry));
  }
  return ok_status();
}

void write_entry(const PackedEntry& entry, Writer& out) {
  out.u32(entry.tensor.size());
  out.text(entry.tensor);
  out.u32(entry.vector ? 1 : 0);
  out.u32(entry.type);
  for (const uint64_t value : {entry.first_row, entry.rows, entry.cols, entry.offset, entry.bytes}) {
    out.u64(value);
  }
}

}  // namespace

std::vector<std::byte> encode_packed_head(const PackedHead& head) {
  const PackedKey& key = head.key;
  Writer out;
  out.text(kMagic);
  out.u64(0);  // the checksum
  for (const uint64_t value :
       {uint64_t{kVersion}, uint64_t{key.layout}, uint64_t{key.float32 ? 1U : 0U}, key.parts.size()}) {
    out.u32(value);
  }
  out.u64(0);  // the head's bytes
  out.u64(key.data_bytes);
  out.u32(key.entries.size());
  out.u32(head.model_path.size());
  for (const PackedPart& part : key.parts) {
    const FileIdentity& id = part.identity;
    for (const uint64_t value : {id.device, id.inode, id.size, static_cast<uint64_t>(id.modified_ns),
                                 static_cast<uint64_t>(id.changed_ns), part.head.low, part.head.high}) {
      out.u64(value);
    }
  }
  out.text(head.model_path);
  for (const PackedEntry& entry : key.entries) write_entry(entry, out);
  for (const uint64_t sum : head.checksums) out.u64(sum);
  out.out.resize(round_up<uint64_t>(out.out.size(), kPackedAlign));
  out.set_u64(kHeadBytesAt, out.out.size());
  out.set_u64(kChecksumAt, xxh3_64(std::span(out.out).subspan(kCheckedFrom)));
  return std::move(out.out);
}

Result<uint64_t> packed_head_bytes(std::span<const std::byte> start) {
  ByteReader reader(start);
  const auto magic = reader.take_text(kMagic.size());
  if (!magic || *magic != kMagic) return corrupt("not a packed cache");
  reader.skip(8);
  const auto version = reader.read<uint32_t>();
  if (!version) return corrupt("the packed cache ends inside its head");
  if (*version != kVersion) return unsupported("packed cache of version " + std::to_string(*version));
  const auto bytes = reader.seek(kHeadBytesAt) ? reader.read<uint64_t>() : std::nullopt;
  if (!bytes || *bytes < kPackedAlign || *bytes % kPackedAlign != 0 || *bytes > kPackedMaxHead) {
    return corrupt("the packed cache's head has no sensible length");
  }
  return *bytes;
}

Result<PackedHead> parse_packed_head(std::span<const std::byte> bytes) {
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t length, packed_head_bytes(bytes));
  if (length != bytes.size()) return corrupt("the packed cache's head is cut");
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + kChecksumAt, sizeof(checksum));
  if (checksum != xxh3_64(bytes.subspan(kCheckedFrom))) return corrupt("wrong checksum of the head");
  // The checksum is no secret: what follows may still be anything.
  Fields in(bytes.subspan(kCheckedFrom + 4));
  PackedHead head;
  PackedKey& key = head.key;
  key.layout = in.u32();
  const uint32_t arithmetic = in.u32();
  key.float32 = arithmetic == 1;
  const uint32_t parts = in.u32();
  in.u64();  // the head's bytes, seen above
  key.data_bytes = in.u64();
  const uint32_t entries = in.u32();
  const uint32_t path_bytes = in.u32();
  if (arithmetic > 1 || parts == 0 || parts > kMaxParts || key.data_bytes > kMaxDataBytes) {
    return corrupt("the packed cache's head has fields out of range");
  }
  if (!in.fits(parts, kPartBytes)) return corrupt("the packed cache's head is too short for its parts");
  read_parts(in, parts, key.parts);
  head.model_path = in.text(path_bytes);
  if (in.failed()) return corrupt("the packed cache's head is too short for its path");
  ISTHMUS_RETURN_IF_ERROR(read_entries(in, entries, key));
  const uint64_t pieces = pieces_of(key.data_bytes);
  if (!in.fits(pieces, 8)) return corrupt("the packed cache's head is too short for its checksums");
  for (uint64_t i = 0; i < pieces; ++i) head.checksums.push_back(in.u64());
  if (!in.rest_is_zero()) return corrupt("the packed cache's head has bytes behind its end");
  return head;
}

}  // namespace isthmus
