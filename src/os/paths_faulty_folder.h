// The fault-injecting twin of Folder: passes every call on to a real folder until its plan says that this one
// fails. For tests of everything that writes to disk.
//
// The plan is shared by the folder, its subfolders and its files, and may be changed between calls; not
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
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

  /// Steps that change something (creating, writing, syncing, renaming, removing) since the plan was made.
  uint64_t steps = 0;
  /// This step (from 0) and all after it fail; a write writes half of its bytes first.
  uint64_t fail_from = std::numeric_limits<uint64_t>::max();
  /// Called in the place of the first that fails: a test may end the process there.
  std::function<void()> on_failure = {};

  /// Counts a step; its error when it has to fail.
  Status step();
};

/// `real` with the faults of `plan`. Locks are never failed.
std::shared_ptr<Folder> faulty_folder(std::shared_ptr<Folder> real, std::shared_ptr<FaultPlan> plan);

}  // namespace isthmus
