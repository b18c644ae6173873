// Private to src/format: what a GgufFile holds. Immutable after opening.
#pragma once

#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_parse.h"
#include "os/mmap.h"

namespace isthmus {

struct GgufFile::Impl {
  std::vector<MappedFile> maps;    // one per part; empty when the bytes are in memory
  std::vector<std::string> paths;  // never empty
  uint64_t file_bytes = 0;
  uint32_t version = 0;
  std::vector<GgufEntry> entries;  // of the first part
  std::vector<GgufTensor> tensors;
  // Sorted, not hashed: a hostile file cannot choose keys that collide.
  std::vector<uint32_t> entries_by_key;
  std::vector<uint32_t> tensors_by_name;

  Status add_part(std::span<const std::byte> bytes, GgufPart part);
  /// Call once, after the last part.
  Status index();
  Result<const GgufEntry*> entry(std::string_view key) const;
};

}  // namespace isthmus
