// The head of a packed-cache file: which model, packed how, what lies where, and the checksums of the data.
//
// Only bytes to values and back; packed_cache.h does the reading and writing. What is parsed comes from disk
// and is untrusted: bounds-checked, with limits, refused unless every byte is as it must be. The format's
// page is docs/formats/packed-cache.md. Values; any thread. Errors: kCorrupt, kUnsupported (another version).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/xxh3.h"
#include "kernels/panel_layout.h"
#include "os/mmap.h"

namespace isthmus {

/// Data is checked in pieces of this many bytes.
inline constexpr uint64_t kPackedPieceBytes = uint64_t{64} << 10;
/// The data begin at a multiple of this.
inline constexpr uint64_t kPackedAlign = 4096;
/// A head is at most this long: 32 bytes for each MiB of the largest model, and its names.
inline constexpr uint64_t kPackedMaxHead = uint64_t{256} << 20;

/// One file of the model.
struct PackedPart {
  FileIdentity identity;
  Xxh3Digest head;  // of the bytes before its tensor data
  bool operator==(const PackedPart&) const = default;
};

/// One matrix or vector in the data.
struct PackedEntry {
  std::string tensor;
  bool vector = false;  // kept as float32 values
  uint32_t type = 0;    // DType of the source
  uint64_t first_row = 0;
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t offset = 0;  // in the data
  uint64_t bytes = 0;
  bool operator==(const PackedEntry&) const = default;
};

/// What must be equal for the data to be usable.
struct PackedKey {
  uint32_t layout = kPanelLayoutVersion;
  bool float32 = false;  // packed for Compute::kF32
  uint64_t data_bytes = 0;
  std::vector<PackedPart> parts;
  std::vector<PackedEntry> entries;
  bool operator==(const PackedKey&) const = default;
};

struct PackedHead {
  PackedKey key;
  std::string model_path;           // of the first part; says whose file this is, and is no part of the key
  std::vector<uint64_t> checksums;  // XXH3-64 of each piece of the data
};

/// A multiple of kPackedAlign bytes.
std::vector<std::byte> encode_packed_head(const PackedHead& head);

/// Bytes of the head, from its first kPackedAlign bytes. Errors as parse_packed_head().
Result<uint64_t> packed_head_bytes(std::span<const std::byte> start);

/// `bytes` is the whole head and nothing behind it.
Result<PackedHead> parse_packed_head(std::span<const std::byte> bytes);

}  // namespace isthmus
