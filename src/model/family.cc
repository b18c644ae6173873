#include "model/family.h"

#include <string>

namespace isthmus {

// families.inc is written by the build: one ISTHMUS_FAMILY(name) per file in families/.
#define ISTHMUS_FAMILY(name) const Family& family_##name();
#include "families.inc"
#undef ISTHMUS_FAMILY

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> kFamilies = {
#define ISTHMUS_FAMILY(name) &family_##name(),
#include "families.inc"
#undef ISTHMUS_FAMILY
  };
  return kFamilies;
}

Result<const Family*> find_family(std::string_view architecture) {
  std::string known;
  for (const Family* family : families()) {
    if (family->architecture == architecture) return family;
    known += known.empty() ? "" : ", ";
    known += family->architecture;
  }
  return unsupported("general.architecture is '" + std::string(architecture) + "'; known are: " + known);
}

}  // namespace isthmus
