// A file system in memory that can lose power and can fail: the twin of the real one for tests.
//
// It keeps two states: what a running program sees, and what would survive a power cut. Bytes survive after
// sync(), names after sync_directory(). crash() moves back to what survived, in one of two ways, because a
// real disk may or may not have written an unsynced rename. fail_at(n) makes the n-th operation from now
// fail, and all later ones too, as a full disk does. Safe from any thread. Directories exist implicitly.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "os/file.h"

namespace isthmus {

class SimFileSystem final : public FileSystem {
 public:
  enum class Crash {
    kLoseUnsyncedNames,  // the directory is as last synced
    kKeepNames,          // every rename and creation reached the disk, unsynced bytes did not
  };

  SimFileSystem();
  ~SimFileSystem() override;

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::string> read(const std::string& path, size_t limit) override;
  bool exists(const std::string& path) override;

  /// Operation number `n` (0 = the next) and all after it fail with `err` (an errno value); a failing append
  /// writes half of its bytes first.
  void fail_at(uint64_t n, int err);
  /// Operations succeed again.
  void heal();
  uint64_t operations() const;
  void crash(Crash mode);
  std::vector<std::string> names() const;

 private:
  friend class SimFile;
  struct Inode;
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  Status step(std::string_view action, const std::string& path);  // counts, and fails when it is time

  mutable std::mutex mutex_;
  Names live_;
  Names durable_;
  uint64_t operations_ = 0;
  uint64_t fail_from_ = UINT64_MAX;
  int fail_errno_ = 0;
};

}  // namespace isthmus
