// KV records: any bytes, as they are and under checksums that fit. What is taken must encode to the same
// bytes, and must not be appended to a sequence of another shape.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/xxh3.h"
#include "kv/kv_record.h"

namespace {

using isthmus::KvRecord;

isthmus::Result<isthmus::Digest> fuzz_digest(std::span<const std::byte> bytes) {
  isthmus::Digest out{};
  const auto sum = isthmus::xxh3_128(bytes);
  std::memcpy(out.data(), &sum, sizeof(sum));
  return out;
}

void use(std::span<const std::byte> bytes) {
  const auto record = KvRecord::parse(bytes);
  if (!record.ok()) return;
  const auto whole = isthmus::parse_record(bytes);
  if (!whole.ok()) std::abort();
  isthmus::RecordWriter writer(whole->head, whole->data.size());
  std::copy(whole->data.begin(), whole->data.end(), writer.data().begin());
  const auto again = writer.finish();
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  (void)record->check_keys(fuzz_digest).ok();
  isthmus::Ledger ledger(UINT64_MAX);
  isthmus::BlockPoolConfig config;
  config.head_dim = 8;
  config.blocks = 16;
  auto pool = isthmus::BlockPool::create(config, ledger);
  if (!pool.ok()) return;
  isthmus::KvSequence kv(*pool, 1, 1);
  if (record->append_to(kv, 0, record->blocks()).ok() && kv.length() != record->tokens().size()) std::abort();
}

/// Sets the checksums of data and head, where the sizes allow it.
void seal(std::vector<std::byte>& bytes) {
  const auto size = isthmus::record_size(bytes);
  if (!size.ok() || size->total() != bytes.size()) return;
  const auto data = std::span(bytes).subspan(size->head);
  const uint64_t pieces = (data.size() + isthmus::kRecordPieceBytes - 1) / isthmus::kRecordPieceBytes;
  uint32_t parts[3];  // keys, label, description
  std::memcpy(parts, bytes.data() + 32, sizeof(parts));
  const uint64_t at = uint64_t{120} + uint64_t{32} * parts[0] + parts[1] + parts[2];
  for (uint64_t i = 0; i < pieces && at + 8 * (i + 1) <= size->head; ++i) {
    const auto piece = data.subspan(i * isthmus::kRecordPieceBytes);
    const uint64_t sum =
        isthmus::xxh3_64(piece.first(std::min<size_t>(piece.size(), isthmus::kRecordPieceBytes)));
    std::memcpy(bytes.data() + at + 8 * i, &sum, sizeof(sum));
  }
  const uint64_t sum = isthmus::xxh3_64(std::span(bytes).first(size->head).subspan(16));
  std::memcpy(bytes.data() + 8, &sum, sizeof(sum));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto raw = std::as_bytes(std::span(data, size));
  (void)isthmus::parse_record_head(raw).ok();
  use(raw);
  if (size < isthmus::kRecordStartBytes + 24) return 0;
  std::vector<std::byte> sealed(raw.begin(), raw.end());
  seal(sealed);
  use(sealed);
  return 0;
}
