// Folders of what somebody read or said: nobody else may look.
#pragma once

#include <memory>
#include <string>

#include "os/paths_folder.h"

namespace isthmus {

/// Takes all permissions of a folder away but its owner's. kIo.
Status make_private(const std::string& path);
/// Opens such a folder, and makes it where it is absent.
Result<std::shared_ptr<Folder>> private_folder(const std::string& path);

}  // namespace isthmus
