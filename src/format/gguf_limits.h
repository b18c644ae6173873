// Limits of the GGUF reader and writer. A file beyond one of them is refused with kResourceExhausted and a
// message that names the limit; each is tested one below, at, and one above. None is reached by a model that
// we know of; they bound the work and memory that a hostile file can ask for. Documented in
// docs/formats/gguf.md.
#pragma once

#include <cstdint>

namespace isthmus {

inline constexpr uint64_t kGgufMaxKeys = 65'536;      // metadata pairs of one file
inline constexpr uint64_t kGgufMaxTensors = 65'536;   // tensors of one file
inline constexpr uint64_t kGgufMaxKeyBytes = 65'535;  // the format's own limit
inline constexpr uint64_t kGgufMaxNameBytes = 256;  // of a tensor; the format says 64, some writers exceed it
inline constexpr uint64_t kGgufMaxStringBytes =
    16u << 20;  // of a metadata string; the largest chat template is 50 KB
inline constexpr uint64_t kGgufMaxArrayElements = 16u << 20;  // the largest vocabularies have 262,144
inline constexpr uint64_t kGgufMaxAlignment = 65'536;
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr uint32_t kGgufMaxDims = 4;
inline constexpr uint64_t kGgufMaxParts = 1'024;

}  // namespace isthmus
