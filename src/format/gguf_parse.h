// Private to src/format: the header of one GGUF file, checked and turned into views.
//
// parse_gguf_part() does all checks that one file allows; gguf.cc joins the parts of a split model. Views
// point into the caller's bytes. No state, any thread. Errors name the key or tensor and the offset, not the
// file (the caller knows it).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace isthmus {

/// The metadata key that the layout of a file depends on.
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

/// One metadata pair. `element` and `count` describe an array; otherwise they are the type itself and 1.
/// `payload` is what GgufFile::raw() returns.
struct GgufEntry {
  std::string_view key;
  GgufType type{};
  GgufType element{};
  uint64_t count = 1;
  std::span<const std::byte> payload;
  uint64_t offset = 0;  // of the key, in the file
};

struct GgufPart {
  uint32_t version = 0;
  std::vector<GgufEntry> entries;   // in file order, keys unique
  std::vector<GgufTensor> tensors;  // in file order, names unique, extents inside the file and apart
};

Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, uint32_t part);

/// Bytes of a value of a fixed-size type; 0 for strings and arrays.
size_t gguf_scalar_bytes(GgufType type);

/// Text from a file, made safe for a message: quoted, control and non-ASCII bytes escaped, cut after 64
/// bytes.
std::string quote_untrusted(std::string_view text);

}  // namespace isthmus
