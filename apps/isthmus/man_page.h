// Manual pages in roff, written from the description of the commands (describe.h).
#pragma once

#include <string>

#include "apps/isthmus/describe.h"
#include "base/status.h"

namespace isthmus::cli {

/// The page of one command. `version` stands in its footer.
std::string man_page(const CommandDoc& doc, const std::string& version);

/// Writes isthmus.1 and one isthmus-VERB.1 per command into `folder`, which is made when missing. kIo names
/// the file.
Status write_man_pages(const CLI::App& root, const std::string& folder);

}  // namespace isthmus::cli
