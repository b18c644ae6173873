// The flash tier of KV: records in a folder, found by the keys of their blocks, within a quota.
//
//   records/<64 hex>   one record (docs/formats/kv-record.md) under its name, its last key
//   index.sqlite       which record holds which key (kv_index.h)
//   tier.lock          held while records are added or removed
//
// A record appears whole or not at all: temporary file, write, fsync, rename, fsync of the folder; only then
// it is indexed. It is checked to its last byte when it is read, and must hold the key that was asked for, so
// neither a crash at any step, nor a damaged file or index, nor another process can make the tier serve
// anything but what was put in: it only loses records. No link is followed. Over the quota the record used
// longest ago goes, of those on which no other stands. When the disk is full or cannot be written, the tier
// goes on as read-only and says why. Folder and files belong to their user alone: they tell what was read.
//
// Any number of processes may use one folder; a KvTier may be used from any thread. Errors as in
// base/record_tier.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/record_tier.h"
#include "os/paths_folder.h"
#include "store/kv_index.h"

namespace isthmus {

struct KvTierOptions {
  uint64_t quota = uint64_t{4} << 30;         // bytes of all records
  uint64_t disk_reserve = uint64_t{2} << 30;  // left free on the disk
  std::function<int64_t()> now_ns = {};       // since the epoch; empty: the system clock
  std::string vfs = {};                       // of the index (KvIndex::open)
};

/// Since the tier was opened, but for the first two.
struct KvTierFigures {
  size_t records = 0;
  uint64_t bytes = 0;
  size_t hits = 0;
  size_t misses = 0;   // of read()
  size_t damaged = 0;  // records dropped because their bytes were wrong
  size_t refused = 0;  // dropped by refuse()
  size_t written = 0;
  size_t evicted = 0;
  bool index_rebuilt = false;
  std::string read_only;  // why nothing more is written; empty: it is
};

class KvTier final : public RecordTier {
 public:
  /// Opens, and makes where absent. kUnavailable when another process holds the lock for five seconds.
  static Result<std::unique_ptr<KvTier>> open(std::shared_ptr<Folder> root, KvTierOptions options = {});
  static Result<std::unique_ptr<KvTier>> open(const std::string& path, KvTierOptions options = {});
  ~KvTier() override;

  std::string_view name() const override { return "flash"; }
  bool holds(const Digest& key) override;
  Result<std::vector<std::byte>> read(const Digest& key) override;
  /// kInvalidArgument for what is no record; kResourceExhausted when the quota is too small for it.
  Status write(std::span<const std::byte> record) override;
  void refuse(const Digest& key) override;
  void forget(const Digest& key) override;

  /// All records, those used last first.
  Result<std::vector<KvIndexRow>> list();
  /// Removes records; the number of bytes freed.
  Result<uint64_t> drop(std::span<const Digest> names);
  KvTierFigures figures();
  const std::string& path() const { return root_->path(); }

 private:
  KvTier(std::shared_ptr<Folder> root, std::shared_ptr<Folder> records, KvTierOptions options);
  int64_t now() const;
  Result<FolderLock> lock() const;
  Status open_index();
  Status remake_index();
  Status reconcile();
  Result<KvIndexRow> examine(const std::string& file) const;
  void remove_leftovers(const std::vector<std::string>& names);

  Result<std::vector<std::byte>> read_record(const Digest& name, const Digest& key);
  void remove_record(const Digest& name);
  Status repair(const Status& status);
  void flush_uses();
  Status make_room(uint64_t bytes, const std::optional<Digest>& spared);
  Status write_file(const std::string& file, std::span<const std::byte> record);
  Status note_failure(Status status);

  std::shared_ptr<Folder> root_;
  std::shared_ptr<Folder> records_;
  KvTierOptions options_;
  std::mutex mutex_;  // of everything below
  std::optional<KvIndex> index_;
  std::vector<Digest> used_;  // records read since the index was told
  KvTierFigures figures_;
};

/// The standard folder, <cache>/kv.
Result<std::string> standard_kv_folder();

}  // namespace isthmus
