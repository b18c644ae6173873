#include "store/kv_index.h"

#include <sqlite3.h>

#include <cstring>

namespace isthmus {
namespace {

constexpr int kBusyMilliseconds = 2000;
/// Written into the database; another one is made anew.
constexpr int kIndexVersion = 1;

constexpr const char* kSchema = R"sql(
CREATE TABLE IF NOT EXISTS record(
  name BLOB PRIMARY KEY, parent BLOB NOT NULL, identity BLOB NOT NULL, label TEXT NOT NULL,
  first_token INTEGER NOT NULL, tokens INTEGER NOT NULL, bytes INTEGER NOT NULL, used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS record_parent ON record(parent);
CREATE TABLE IF NOT EXISTS part(key BLOB PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS part_record ON part(record);
)sql";

constexpr const char* kColumns =
    "r.name, r.parent, r.identity, r.label, r.first_token, r.tokens, r.bytes, r.used, "
    "(SELECT p.record FROM part p WHERE p.key = r.parent)";

Status sqlite_status(int code, const std::string& text) {
  switch (code & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return corrupt(text);
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return resource_exhausted(text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return unavailable(text);
    default:
      return io_error(text);
  }
}

/// A prepared statement whose parameters are bound in order.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) : db_(db) {
    code_ = sqlite3_prepare_v2(db, sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr);
  }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }

  Statement& bind(const Digest& value) {
    return note(sqlite3_bind_blob(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                                  SQLITE_TRANSIENT));
  }
  Statement& bind(const std::string& value) {
    return note(sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                                  SQLITE_TRANSIENT));
  }
  Statement& bind(int64_t value) { return note(sqlite3_bind_int64(statement_, ++bound_, value)); }

  /// True when there is a row; false at the end.
  Result<bool> step() {
    if (code_ == SQLITE_OK) code_ = sqlite3_step(statement_);
    if (code_ == SQLITE_ROW) {
      code_ = SQLITE_OK;
      return true;
    }
    if (code_ == SQLITE_DONE) return false;
    return sqlite_status(code_, std::string("the index of the KV tier: ") + sqlite3_errmsg(db_));
  }
  Status finish() { return step().status(); }

  /// nullopt when the column is no digest.
  std::optional<Digest> digest(int column) {
    Digest out{};
    const void* bytes = sqlite3_column_blob(statement_, column);
    if (bytes == nullptr || static_cast<size_t>(sqlite3_column_bytes(statement_, column)) != out.size()) {
      return std::nullopt;
    }
    std::memcpy(out.data(), bytes, out.size());
    return out;
  }
  int64_t number(int column) { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) {
    const unsigned char* bytes = sqlite3_column_text(statement_, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return bytes == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(bytes), size);
  }

 private:
  Statement& note(int code) {
    if (code_ == SQLITE_OK) code_ = code;
    return *this;
  }
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
  int bound_ = 0;
};

Result<int64_t> first_number(sqlite3* db, const std::string& sql) {
  Statement s(db, sql);
  ISTHMUS_RETURN_IF_ERROR(s.finish());
  return s.number(0);
}

/// The row that a statement over kColumns stands on; kCorrupt when a column is not what it must be.
Result<KvIndexRow> read_row(Statement& s) {
  KvIndexRow row;
  const auto name = s.digest(0);
  const auto parent = s.digest(1);
  const auto identity = s.digest(2);
  if (!name || !parent || !identity || s.number(6) < 0) return corrupt("the index of the KV tier: a bad row");
  row.name = *name;
  row.parent = *parent;
  row.identity = *identity;
  row.label = s.text(3);
  row.first_token = static_cast<uint32_t>(s.number(4));
  row.tokens = static_cast<uint32_t>(s.number(5));
  row.bytes = static_cast<uint64_t>(s.number(6));
  row.used_ns = s.number(7);
  row.parent_name = s.digest(8);
  return row;
}

}  // namespace

KvIndexRow index_row(const RecordHead& head, uint64_t bytes, int64_t used_ns) {
  KvIndexRow row;
  row.name = record_name(head);
  row.parent = head.parent;
  row.identity = head.identity;
  row.keys = head.keys;
  row.label = head.label;
  row.first_token = head.first_token;
  row.tokens = head.tokens;
  row.bytes = bytes;
  row.used_ns = used_ns;
  return row;
}

void KvIndex::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

std::vector<std::string> KvIndex::file_names(const std::string& name) {
  return {name, name + "-wal", name + "-shm", name + "-journal"};
}

Result<KvIndex> KvIndex::open(const std::string& path, const std::string& vfs) {
  sqlite3* db = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
  const int code = sqlite3_open_v2(path.c_str(), &db, flags, vfs.empty() ? nullptr : vfs.c_str());
  KvIndex out(db);
  if (code != SQLITE_OK) {
    return sqlite_status(code, "cannot open '" + path + "': " + (db ? sqlite3_errmsg(db) : "no memory"));
  }
  ISTHMUS_RETURN_IF_ERROR(out.prepare());
  return out;
}

Status KvIndex::run(const char* sql) const {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return ok_status();
  return sqlite_status(code, std::string("the index of the KV tier: ") + sqlite3_errmsg(db_.get()));
}

Status KvIndex::prepare() {
  sqlite3_busy_timeout(db_.get(), kBusyMilliseconds);
  sqlite3_extended_result_codes(db_.get(), 1);
  // A record is safe before its row is written, so the index need not be synced at each commit.
  ISTHMUS_RETURN_IF_ERROR(
      run("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF;"));
  ISTHMUS_ASSIGN_OR_RETURN(const int64_t found, first_number(db_.get(), "PRAGMA user_version"));
  if (found == kIndexVersion) {
    Statement quick(db_.get(), "PRAGMA quick_check(1)");
    ISTHMUS_RETURN_IF_ERROR(quick.finish());
    if (quick.text(0) != "ok") return corrupt("the index of the KV tier is damaged: " + quick.text(0));
    return ok_status();
  }
  if (found != 0) return corrupt("the index of the KV tier is of another version");
  return in_transaction([&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(run(kSchema));
    return run(("PRAGMA user_version=" + std::to_string(kIndexVersion)).c_str());
  });
}

template <class Body>
Status KvIndex::in_transaction(Body body) {
  ISTHMUS_RETURN_IF_ERROR(run("BEGIN IMMEDIATE"));
  Status status = body();
  if (status.ok()) status = run("COMMIT");
  // A rollback that fails has nothing to roll back: SQLite did it by itself.
  if (!status.ok()) static_cast<void>(run("ROLLBACK"));
  return status;
}

Result<std::optional<Digest>> KvIndex::find(const Digest& key) {
  Statement s(db_.get(), "SELECT record FROM part WHERE key = ?");
  ISTHMUS_ASSIGN_OR_RETURN(const bool row, s.bind(key).step());
  if (!row) return std::optional<Digest>();
  return s.digest(0);
}

Status KvIndex::add_row(const KvIndexRow& row) {
  Statement record(db_.get(), "INSERT OR REPLACE INTO record VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
  record.bind(row.name).bind(row.parent).bind(row.identity).bind(row.label);
  record.bind(int64_t{row.first_token}).bind(int64_t{row.tokens});
  ISTHMUS_RETURN_IF_ERROR(record.bind(static_cast<int64_t>(row.bytes)).bind(row.used_ns).finish());
  for (const Digest& key : row.keys) {
    Statement part(db_.get(), "INSERT OR IGNORE INTO part VALUES(?, ?)");
    ISTHMUS_RETURN_IF_ERROR(part.bind(key).bind(row.name).finish());
  }
  return ok_status();
}

Status KvIndex::add(std::span<const KvIndexRow> rows) {
  if (rows.empty()) return ok_status();
  return in_transaction([&]() -> Status {
    for (const KvIndexRow& row : rows) ISTHMUS_RETURN_IF_ERROR(add_row(row));
    return ok_status();
  });
}

Status KvIndex::remove(std::span<const Digest> names) {
  if (names.empty()) return ok_status();
  return in_transaction([&]() -> Status {
    for (const Digest& name : names) {
      Statement parts(db_.get(), "DELETE FROM part WHERE record = ?");
      ISTHMUS_RETURN_IF_ERROR(parts.bind(name).finish());
      Statement record(db_.get(), "DELETE FROM record WHERE name = ?");
      ISTHMUS_RETURN_IF_ERROR(record.bind(name).finish());
    }
    return ok_status();
  });
}

Status KvIndex::touch(std::span<const Digest> names, int64_t now_ns) {
  if (names.empty()) return ok_status();
  return in_transaction([&]() -> Status {
    for (const Digest& name : names) {
      Statement s(db_.get(), "UPDATE record SET used = max(used, ?) WHERE name = ?");
      ISTHMUS_RETURN_IF_ERROR(s.bind(now_ns).bind(name).finish());
    }
    return ok_status();
  });
}

Result<uint64_t> KvIndex::total_bytes() {
  ISTHMUS_ASSIGN_OR_RETURN(const int64_t sum,
                           first_number(db_.get(), "SELECT coalesce(sum(bytes), 0) FROM record"));
  return static_cast<uint64_t>(sum);
}

Result<std::optional<KvIndexRow>> KvIndex::oldest_leaf(const std::optional<Digest>& spared) {
  Statement s(db_.get(),
              std::string("SELECT ") + kColumns +
                  " FROM record r WHERE r.name != ? AND NOT EXISTS (SELECT 1 FROM part q JOIN record c "
                  "ON c.parent = q.key WHERE q.record = r.name AND c.name != r.name) "
                  "ORDER BY r.used, r.name LIMIT 1");
  ISTHMUS_ASSIGN_OR_RETURN(const bool row, s.bind(spared.value_or(Digest{})).step());
  if (!row) return std::optional<KvIndexRow>();
  ISTHMUS_ASSIGN_OR_RETURN(KvIndexRow out, read_row(s));
  return std::optional<KvIndexRow>(std::move(out));
}

Result<std::vector<KvIndexRow>> KvIndex::rows() {
  std::vector<KvIndexRow> out;
  Statement s(db_.get(), std::string("SELECT ") + kColumns + " FROM record r ORDER BY r.used DESC, r.name");
  while (true) {
    ISTHMUS_ASSIGN_OR_RETURN(const bool row, s.step());
    if (!row) return out;
    ISTHMUS_ASSIGN_OR_RETURN(KvIndexRow next, read_row(s));
    out.push_back(std::move(next));
  }
}

}  // namespace isthmus
