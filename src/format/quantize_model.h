// Converting a whole model file to other tensor types: `isthmus quantize` is a thin layer over this.
//
// Metadata is copied (general.file_type and general.quantization_version are set, keys of split models
// dropped: the result is one file), each tensor converted as plan_quantize() decides, the file published
// atomically. Rows are converted independently, so the bytes are the same at any thread count. Memory stays
// at a few tens of MiB: tensors are converted in pieces, and source pages released behind. Blocking; the
// progress callback runs on the calling thread. Errors: those of plan_quantize(), kCorrupt naming tensor and
// row for weights that are not finite, kFailedPrecondition when the target exists or is a source, kCancelled,
// and those of writing files. On any error nothing is left behind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "format/gguf.h"
#include "format/quantize_plan.h"
#include "os/file.h"

namespace isthmus {

struct QuantizeProgress {
  size_t tensor = 0;  // index of the current one
  size_t tensors = 0;
  std::string_view name;
  uint64_t bytes_done = 0;  // of the source
  uint64_t bytes_total = 0;
};

/// Mean square of the activation that each column of a tensor is multiplied with, by tensor name. For a
/// tensor with several matrices (experts) either one set of columns for all, or one per matrix in order.
using ImportanceMap = std::map<std::string, std::vector<float>, std::less<>>;

struct QuantizeOptions {
  QuantizeWish wish;
  size_t threads = 1;      // at least 1
  bool overwrite = false;  // replace an existing target (never a source)
  const ImportanceMap* importance = nullptr;
  std::function<void(const QuantizeProgress&)> progress;  // may be empty
  StopPolicy stop;                                        // asked between pieces
};

struct TensorReport {
  TensorDecision decision;
  double relative_rms = 0.0;  // sqrt(sum (new - old)^2 / sum old^2); 0 for tensors that were copied
  bool weighted = false;      // an importance was used
};

struct QuantizeReport {
  std::vector<TensorReport> tensors;  // in file order
  uint64_t bytes_from = 0;            // of the source files
  uint64_t bytes_to = 0;              // of the new file
  double bits_per_weight = 0.0;       // of the new file's tensors
};

Result<QuantizeReport> quantize_model(const GgufFile& model, FileSystem& files,
                                      const std::string& target_path, const QuantizeOptions& options);

}  // namespace isthmus
