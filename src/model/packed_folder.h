// The folder of the packed cache: names of files, and what may go. Private to packed_cache.h, whose functions
// packed_folder_facts(), remove_packed() and clean_packed() are here too. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/packed_format.h"
#include "os/mmap.h"

namespace isthmus {

/// `path` made absolute, links followed as far as it exists; the path itself when the system cannot say.
std::string absolute_path(const std::string& path);

/// Of the file that holds the screen of a model's output head (head_screen.h).
inline constexpr std::string_view kScreenSuffix = "-head";

/// "<hash of the absolute path><suffix>.packed".
std::string packed_file_name(const std::string& model_path, std::string_view suffix = "");

/// The head of a cache file whose length is what the head says.
Result<PackedHead> read_packed_head(const MappedFile& file);

}  // namespace isthmus
