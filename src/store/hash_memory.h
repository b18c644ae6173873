// The SHA-256 of any model file, remembered: a file that is the same inode with the same size and time of
// change as before is not read again.
//
// The identity of a model in every cache is this digest, and reading 1 GB for it at each start would cost
// about a second. What is remembered lies in a folder of the cache, one small file per inode; losing it costs
// only time. A program that changes a file's bytes and then sets its time back is not noticed: `isthmus
// verify` always reads. Thread-safe between processes (records appear whole). Errors: those of reading the
// file; a memory that cannot be read or written is passed over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/cancel.h"
#include "base/status.h"
#include "os/paths_folder.h"

namespace isthmus {

struct FileDigest {
  std::string sha256;
  bool remembered = false;  // false: the file was read
};

/// `progress` (may be empty) gets the bytes read and the size. Files whose content changed within the last
/// two seconds are not remembered, because a further change might leave the same time stamp.
Result<FileDigest> file_digest(const std::string& path, Folder& memory, const StopPolicy& stop,
                               const std::function<void(uint64_t done, uint64_t total)>& progress);

/// file_digest with the memory in the standard cache folder; without a usable one the file is read each time.
Result<FileDigest> file_digest(const std::string& path, const StopPolicy& stop,
                               const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace isthmus
