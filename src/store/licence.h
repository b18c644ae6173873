// The licence of a model as catalogues and manifests write it: member "licence" of their JSON objects.
// Thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"
#include "store/catalogue.h"

namespace isthmus {

/// The licence of `object`. kCorrupt when the member or one of its texts is missing or of another type.
Result<Licence> parse_licence(const nlohmann::json& object);

}  // namespace isthmus
