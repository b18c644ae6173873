// A file layer of SQLite for tests: the usual one, whose writing steps count into a FaultPlan and fail, or
// end the process, where the plan says so. One at a time; not thread-safe.
#pragma once

#include <sqlite3.h>

#include <cstring>
#include <string>

#include "os/paths_faulty_folder.h"

namespace isthmus::testing {

class FaultVfs {
 public:
  /// Registers the layer under name(); `plan` outlives it.
  explicit FaultVfs(FaultPlan& plan) {
    real_ = sqlite3_vfs_find(nullptr);
    plan_ = &plan;
    std::memset(&vfs_, 0, sizeof(vfs_));
    vfs_ = *real_;
    vfs_.zName = kName;
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.pNext = nullptr;
    vfs_.xOpen = open;
    vfs_.xDelete = remove;
    sqlite3_vfs_register(&vfs_, 0);
  }
  ~FaultVfs() { sqlite3_vfs_unregister(&vfs_); }
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;
  static std::string name() { return kName; }

 private:
  static constexpr const char* kName = "fault";
  struct File {
    sqlite3_file base;
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static sqlite3_file* real_of(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real(); }
  static const sqlite3_io_methods& methods_of(sqlite3_file* file) { return *real_of(file)->pMethods; }
  static bool fails() { return !plan_->step().ok(); }

  static int open(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out_flags) {
    file->pMethods = nullptr;
    const bool fresh = (flags & SQLITE_OPEN_CREATE) != 0;
    if (fresh && fails()) return SQLITE_CANTOPEN;
    auto* real_file = reinterpret_cast<File*>(file)->real();
    std::memset(real_file, 0, static_cast<size_t>(real_->szOsFile));
    const int code = real_->xOpen(real_, path, real_file, flags, out_flags);
    if (code == SQLITE_OK) file->pMethods = &kMethods;
    return code;
  }
  static int remove(sqlite3_vfs*, const char* path, int sync) {
    return fails() ? SQLITE_IOERR_DELETE : real_->xDelete(real_, path, sync);
  }
  static int close(sqlite3_file* f) { return methods_of(f).xClose(real_of(f)); }
  static int read(sqlite3_file* f, void* out, int n, sqlite3_int64 at) {
    return methods_of(f).xRead(real_of(f), out, n, at);
  }
  static int write(sqlite3_file* f, const void* bytes, int n, sqlite3_int64 at) {
    const bool last = plan_->steps >= plan_->fail_from;
    if (last) methods_of(f).xWrite(real_of(f), bytes, n / 2, at);  // torn
    return fails() ? SQLITE_IOERR_WRITE : methods_of(f).xWrite(real_of(f), bytes, n, at);
  }
  static int truncate(sqlite3_file* f, sqlite3_int64 size) {
    return fails() ? SQLITE_IOERR_TRUNCATE : methods_of(f).xTruncate(real_of(f), size);
  }
  static int sync(sqlite3_file* f, int flags) {
    return fails() ? SQLITE_IOERR_FSYNC : methods_of(f).xSync(real_of(f), flags);
  }
  static int file_size(sqlite3_file* f, sqlite3_int64* size) {
    return methods_of(f).xFileSize(real_of(f), size);
  }
  static int lock(sqlite3_file* f, int level) { return methods_of(f).xLock(real_of(f), level); }
  static int unlock(sqlite3_file* f, int level) { return methods_of(f).xUnlock(real_of(f), level); }
  static int reserved(sqlite3_file* f, int* out) { return methods_of(f).xCheckReservedLock(real_of(f), out); }
  static int control(sqlite3_file* f, int op, void* arg) {
    return methods_of(f).xFileControl(real_of(f), op, arg);
  }
  static int sector(sqlite3_file* f) { return methods_of(f).xSectorSize(real_of(f)); }
  static int device(sqlite3_file* f) { return methods_of(f).xDeviceCharacteristics(real_of(f)); }
  static int shm_map(sqlite3_file* f, int page, int size, int extend, void volatile** out) {
    return methods_of(f).xShmMap(real_of(f), page, size, extend, out);
  }
  static int shm_lock(sqlite3_file* f, int offset, int n, int flags) {
    return methods_of(f).xShmLock(real_of(f), offset, n, flags);
  }
  static void shm_barrier(sqlite3_file* f) { methods_of(f).xShmBarrier(real_of(f)); }
  static int shm_unmap(sqlite3_file* f, int remove_it) {
    return methods_of(f).xShmUnmap(real_of(f), remove_it);
  }

  static constexpr sqlite3_io_methods kMethods = {
      2,       close,  read,   write,   truncate, sync,        file_size, lock,    unlock, reserved,
      control, sector, device, shm_map, shm_lock, shm_barrier, shm_unmap, nullptr, nullptr};

  static inline sqlite3_vfs* real_ = nullptr;
  static inline FaultPlan* plan_ = nullptr;
  sqlite3_vfs vfs_;
};

}  // namespace isthmus::testing
