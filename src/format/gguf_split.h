// Private to src/format: models split into several files.
//
// The convention: part k of n (counted from 1) is named "<name>-<k, 5 digits>-of-<n, 5 digits>.gguf" and
// carries split.no = k - 1 and split.count = n; the first part holds the metadata, and split.tensors.count
// the tensors of all parts together. Pure functions, any thread; errors do not name the file (the caller
// knows it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/gguf_parse.h"

namespace isthmus {

/// What one part says about the whole.
struct SplitFacts {
  uint64_t no = 0;
  uint64_t count = 1;
  std::optional<uint64_t> tensors;
};

/// kCorrupt when a key is there but no count.
Result<SplitFacts> split_facts(const GgufPart& part);

/// The paths of all `count` parts of the model that `path` is one part of, in order. kCorrupt when the file's
/// name says something else.
Result<std::vector<std::string>> split_paths(const std::string& path, uint64_t count);

/// The name of part `index` (from 0) of `count`: "<stem>-00001-of-00003.gguf".
std::string split_path(const std::string& stem, uint64_t index, uint64_t count);

}  // namespace isthmus
