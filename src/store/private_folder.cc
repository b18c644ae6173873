#include "store/private_folder.h"

#include <filesystem>

namespace isthmus {

Status make_private(const std::string& path) {
  std::error_code error;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  return error ? io_error("cannot make '" + path + "' private: " + error.message()) : ok_status();
}

Result<std::shared_ptr<Folder>> private_folder(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(std::shared_ptr<Folder> folder, posix_folder(path, true));
  ISTHMUS_RETURN_IF_ERROR(make_private(path));
  return folder;
}

}  // namespace isthmus
