// An architecture family: how to read its configuration, which tensors a layer has, and the layer itself as a
// list of named operations in the published order.
//
// One file under families/ per family, defining `const Family& family_<file name>()`; the build collects
// them, so a new family touches no other file.
#pragma once

#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/layer_run.h"
#include "model/weights.h"

namespace isthmus {

struct Family {
  std::string_view architecture;  // value of general.architecture
  /// Fills the configuration from the metadata.
  Status (*configure)(const GgufFile& file, ModelConfig& config);
  /// Declares the tensors of one layer.
  Status (*bind_layer)(const ModelConfig& config, size_t layer, WeightBinder& binder, LayerWeights& weights);
  /// Runs one layer over the residual stream; called by every thread of the region.
  void (*run_layer)(LayerRun& run);
};

/// All families that were built in, by file name.
const std::vector<const Family*>& families();
/// The family of an architecture; kUnsupported lists the known ones.
Result<const Family*> find_family(std::string_view architecture);

}  // namespace isthmus
