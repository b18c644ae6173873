// The fault-injecting twin of Folder: passes every call on to a real folder until its plan says that this one
// fails. For tests of everything that writes to disk.
//
// The plan is shared by the folder, its subfolders and its files, and may be changed between calls; not
// thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "os/paths_folder.h"

namespace isthmus {

struct FaultPlan {
  /// Bytes that can still be written before the disk is full; a write that does not fit is cut short first.
  uint64_t disk_bytes = std::numeric_limits<uint64_t>::max();
  /// What free_bytes() answers at most.
  uint64_t reported_free = std::numeric_limits<uint64_t>::max();
  bool fail_file_sync = false;
  bool fail_folder_sync = false;
  bool fail_rename = false;
};

/// `real` with the faults of `plan`. Locks are never failed.
std::shared_ptr<Folder> faulty_folder(std::shared_ptr<Folder> real, std::shared_ptr<FaultPlan> plan);

}  // namespace isthmus
