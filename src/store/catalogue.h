// The catalogue: which models have a name, where their file comes from, its size, digest and licence.
//
// One catalogue is built in (catalogue.json); a user's own, of the same format, may be laid over it. The
// format's page is docs/formats/catalogue.md. Immutable after it is made; thread-safe. Errors: kCorrupt,
// kResourceExhausted, each naming the model and key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "store/model_source.h"

namespace isthmus {

struct Licence {
  std::string id;            // SPDX identifier where there is one
  std::string name;          // for people
  std::string url;           // its text
  std::string terms;         // to be shown before use; may be empty
  bool must_accept = false;  // the user has to agree before the download
};

struct CatalogueEntry {
  std::string name;                  // "smollm2:135m"
  std::vector<std::string> aliases;  // other names for it
  std::string title;                 // one line for people
  std::string architecture;          // as in the GGUF
  uint64_t size = 0;                 // bytes of the file
  std::string sha256;
  Licence licence;
  std::vector<ModelSource> sources;  // tried in this order, at least one
};

class Catalogue {
 public:
  /// The one in the program.
  static Result<Catalogue> built_in();
  static Result<Catalogue> parse(std::string_view json);

  const std::vector<CatalogueEntry>& entries() const { return entries_; }
  /// By name or alias; nullptr when there is none.
  const CatalogueEntry* find(std::string_view name) const;
  /// Names and aliases, for suggestions.
  std::vector<std::string> names() const;
  /// This catalogue with the entries of `other` before its own; of two entries that share a name or alias the
  /// one of `other` stays.
  Catalogue overlaid_by(const Catalogue& other) const;

 private:
  std::vector<CatalogueEntry> entries_;
};

}  // namespace isthmus
