// The index of the flash tier: which record holds which key, how large, used when, in an SQLite database.
//
// It is a help and never the truth: records say themselves what they are (base/stored_record.h), and an index
// that is lost or damaged is made anew from them. Several processes may have one open (WAL, one writer at a
// time); a KvIndex belongs to one thread at a time. Errors: kCorrupt (not a database, or damaged, or of
// another version), kResourceExhausted (disk full), kUnavailable (another process holds it for long), kIo.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "base/stored_record.h"

struct sqlite3;

namespace isthmus {

/// A record as the index knows it.
struct KvIndexRow {
  Digest name{};
  Digest parent{};
  Digest identity{};
  std::vector<Digest> keys;
  std::string label;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  uint64_t bytes = 0;
  int64_t used_ns = 0;  // since the epoch
  /// The record that holds `parent`, if one is there. Given back, not stored.
  std::optional<Digest> parent_name;
};

KvIndexRow index_row(const RecordHead& head, uint64_t bytes, int64_t used_ns);

class KvIndex {
 public:
  /// `vfs` names one of SQLite's file layers; empty: the usual one.
  static Result<KvIndex> open(const std::string& path, const std::string& vfs);

  /// The record that holds `key`.
  Result<std::optional<Digest>> find(const Digest& key);
  /// Adds records, all or none; those that are there are replaced.
  Status add(std::span<const KvIndexRow> rows);
  Status remove(std::span<const Digest> names);
  /// Says that these were used now.
  Status touch(std::span<const Digest> names, int64_t now_ns);
  Result<uint64_t> total_bytes();
  /// Of the records on which no other one stands, the one used longest ago; never `spared`.
  Result<std::optional<KvIndexRow>> oldest_leaf(const std::optional<Digest>& spared);
  /// All records, those used last first. Without their keys.
  Result<std::vector<KvIndexRow>> rows();

  /// The names that files of the database may have.
  static std::vector<std::string> file_names(const std::string& name);

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  explicit KvIndex(sqlite3* db) : db_(db) {}
  Status prepare();
  Status add_row(const KvIndexRow& row);
  Status check(int code, const char* what) const;
  Status run(const char* sql) const;
  template <class Body>
  Status in_transaction(Body body);

  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace isthmus
