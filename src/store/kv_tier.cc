#include "store/kv_tier.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/stored_record.h"
#include "os/paths.h"
#include "store/private_folder.h"

namespace isthmus {
namespace {

constexpr char kIndexName[] = "index.sqlite";
constexpr char kLockName[] = "tier.lock";
constexpr std::string_view kTemporaryEnding = ".part";
constexpr auto kLockPatience = std::chrono::seconds(5);
constexpr size_t kWriteStep = size_t{1} << 20;

Status read_exactly(FolderFile& file, std::span<std::byte> out) {
  while (!out.empty()) {
    ISTHMUS_ASSIGN_OR_RETURN(const size_t n, file.read(out));
    if (n == 0) return corrupt("the KV record is cut");
    out = out.subspan(n);
  }
  return ok_status();
}

bool is_damage(const Status& status) {
  return status.code() == Code::kCorrupt || status.code() == Code::kUnsupported ||
         status.code() == Code::kFailedPrecondition;
}

}  // namespace

Result<std::string> standard_kv_folder() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string cache, standard_path(Place::kCache));
  return cache + "/kv";
}

KvTier::KvTier(std::shared_ptr<Folder> root, std::shared_ptr<Folder> records, KvTierOptions options)
    : root_(std::move(root)), records_(std::move(records)), options_(std::move(options)) {}

KvTier::~KvTier() {
  const std::lock_guard<std::mutex> guard(mutex_);
  flush_uses();
}

Result<std::unique_ptr<KvTier>> KvTier::open(const std::string& path, KvTierOptions options) {
  ISTHMUS_ASSIGN_OR_RETURN(auto root, posix_folder(path, true));
  return open(std::move(root), std::move(options));
}

Result<std::unique_ptr<KvTier>> KvTier::open(std::shared_ptr<Folder> root, KvTierOptions options) {
  ISTHMUS_RETURN_IF_ERROR(make_private(root->path()));
  ISTHMUS_ASSIGN_OR_RETURN(auto records, root->subfolder("records"));
  std::unique_ptr<KvTier> out(new KvTier(std::move(root), std::move(records), std::move(options)));
  const std::lock_guard<std::mutex> guard(out->mutex_);
  ISTHMUS_ASSIGN_OR_RETURN(const FolderLock held, out->lock());
  ISTHMUS_RETURN_IF_ERROR(out->open_index());
  return out;
}

int64_t KvTier::now() const {
  if (options_.now_ns) return options_.now_ns();
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

Result<FolderLock> KvTier::lock() const {
  StopPolicy stop;
  stop.deadline = std::chrono::steady_clock::now() + kLockPatience;
  auto held = root_->lock(kLockName, stop, {});
  if (held.status().code() != Code::kDeadlineExceeded) return held;
  return unavailable("another process keeps the KV tier locked");
}

/// Under the lock. An index that is damaged is made anew, once.
Status KvTier::open_index() {
  auto opened = KvIndex::open(root_->path() + "/" + kIndexName, options_.vfs);
  if (opened.ok()) {
    index_.emplace(std::move(*opened));
    Status status = reconcile();
    if (status.code() != Code::kCorrupt) return status;
  } else if (opened.status().code() != Code::kCorrupt) {
    return opened.status();
  }
  return remake_index();
}

Status KvTier::remake_index() {
  index_.reset();
  for (const std::string& name : KvIndex::file_names(kIndexName)) {
    ISTHMUS_RETURN_IF_ERROR(root_->remove(name));
  }
  ISTHMUS_ASSIGN_OR_RETURN(KvIndex index, KvIndex::open(root_->path() + "/" + kIndexName, options_.vfs));
  index_.emplace(std::move(index));
  figures_.index_rebuilt = true;
  return reconcile();
}

/// The row that the record in this file would have. Its data are not looked at.
Result<KvIndexRow> KvTier::examine(const std::string& file) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto opened, records_->open_file(file, OpenMode::kRead));
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, opened->info());
  std::vector<std::byte> bytes(kRecordStartBytes);
  ISTHMUS_RETURN_IF_ERROR(read_exactly(*opened, bytes));
  ISTHMUS_ASSIGN_OR_RETURN(const RecordSize size, record_size(bytes));
  if (size.total() != info.size) return corrupt("the KV record is not as long as its head says");
  bytes.resize(size.head);
  ISTHMUS_RETURN_IF_ERROR(read_exactly(*opened, std::span(bytes).subspan(kRecordStartBytes)));
  ISTHMUS_ASSIGN_OR_RETURN(const RecordHead head, parse_record_head(bytes));
  if (hex_of(record_name(head)) != file) return corrupt("the KV record has another name");
  return index_row(head, size.total(), info.mtime_ns);
}

/// Files that nobody is writing: the lock is ours.
void KvTier::remove_leftovers(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    // What stays costs space until the next start and nothing else.
    if (name.ends_with(kTemporaryEnding)) static_cast<void>(records_->remove(name));
  }
}

/// Makes the index agree with the files that are there.
Status KvTier::reconcile() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, records_->list());
  remove_leftovers(names);
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<KvIndexRow> rows, index_->rows());
  std::set<std::string> known;
  std::vector<Digest> gone;
  for (const KvIndexRow& row : rows) {
    const std::string file = hex_of(row.name);
    if (std::binary_search(names.begin(), names.end(), file)) {
      known.insert(file);
    } else {
      gone.push_back(row.name);
    }
  }
  std::vector<KvIndexRow> found;
  for (const std::string& name : names) {
    if (!digest_from_hex(name) || known.count(name) > 0) continue;
    auto row = examine(name);
    if (row.ok()) {
      found.push_back(std::move(*row));
    } else if (is_damage(row.status())) {
      ++figures_.damaged;
      ISTHMUS_RETURN_IF_ERROR(records_->remove(name));
    }
  }
  ISTHMUS_RETURN_IF_ERROR(index_->remove(gone));
  return index_->add(found);
}

/// After an error of the index: makes it anew when it is damaged. OK when it is of use again.
Status KvTier::repair(const Status& status) {
  if (status.code() != Code::kCorrupt) return status;
  ISTHMUS_ASSIGN_OR_RETURN(const FolderLock held, lock());
  return remake_index();
}

bool KvTier::holds(const Digest& key) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!index_) return false;
  auto name = index_->find(key);
  if (!name.ok() && repair(name.status()).ok()) name = index_->find(key);
  return name.ok() && name->has_value();
}

Result<std::vector<std::byte>> KvTier::read(const Digest& key) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!index_) return unavailable("the KV tier has no index");
  auto name = index_->find(key);
  if (!name.ok() && repair(name.status()).ok()) name = index_->find(key);
  if (!name.ok() || !name->has_value()) {
    ++figures_.misses;
    return name.ok() ? not_found("no record with this key") : name.status();
  }
  auto record = read_record(**name, key);
  if (record.ok()) {
    ++figures_.hits;
    used_.push_back(**name);
    return record;
  }
  ++figures_.misses;
  if (is_damage(record.status())) ++figures_.damaged;
  if (is_damage(record.status()) || record.status().code() == Code::kNotFound) remove_record(**name);
  return record;
}

Result<std::vector<std::byte>> KvTier::read_record(const Digest& name, const Digest& key) {
  ISTHMUS_ASSIGN_OR_RETURN(const auto file, records_->open_file(hex_of(name), OpenMode::kRead));
  std::vector<std::byte> bytes(kRecordStartBytes);
  ISTHMUS_RETURN_IF_ERROR(read_exactly(*file, bytes));
  ISTHMUS_ASSIGN_OR_RETURN(const RecordSize size, record_size(bytes));
  // Before memory is taken for what the head says.
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, file->info());
  if (size.total() != info.size) return corrupt("the KV record is not as long as its head says");
  bytes.resize(size.total());
  ISTHMUS_RETURN_IF_ERROR(read_exactly(*file, std::span(bytes).subspan(kRecordStartBytes)));
  ISTHMUS_ASSIGN_OR_RETURN(const StoredRecord record, parse_record(bytes));
  const auto& keys = record.head.keys;
  if (keys.back() != name) return corrupt("the KV record has another name");
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
    return corrupt("the index of the KV tier names a record without the key");
  }
  return bytes;
}

/// Drops a record that is damaged or gone. What cannot be dropped now is met again by the next reader.
void KvTier::remove_record(const Digest& name) {
  const auto held = lock();
  if (!held.ok()) return;
  static_cast<void>(records_->remove(hex_of(name)));
  static_cast<void>(index_->remove({&name, 1}));
}

void KvTier::refuse(const Digest& key) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!index_) return;
  const auto name = index_->find(key);
  if (!name.ok() || !name->has_value()) return;
  ++figures_.refused;
  remove_record(**name);
}

void KvTier::forget(const Digest& key) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!index_) return;
  const auto name = index_->find(key);
  if (name.ok() && name->has_value()) remove_record(**name);
}

/// What the index does not learn makes a record seem older than it is, and nothing else.
void KvTier::flush_uses() {
  if (index_ && !used_.empty()) static_cast<void>(index_->touch(used_, now()));
  used_.clear();
}

/// Evicts until `bytes` more are within the quota. Never the record on which the new one stands.
Status KvTier::make_room(uint64_t bytes, const std::optional<Digest>& spared) {
  if (bytes > options_.quota)
    return resource_exhausted("the quota of the KV tier is too small for the record");
  ISTHMUS_ASSIGN_OR_RETURN(uint64_t total, index_->total_bytes());
  while (total > options_.quota - bytes) {
    ISTHMUS_ASSIGN_OR_RETURN(const auto leaf, index_->oldest_leaf(spared));
    if (!leaf) return resource_exhausted("the quota of the KV tier is too small for the text");
    // The file first: a row without a file is found out, a file without a row would come back.
    ISTHMUS_RETURN_IF_ERROR(records_->remove(hex_of(leaf->name)));
    ISTHMUS_RETURN_IF_ERROR(index_->remove({&leaf->name, 1}));
    total -= std::min(total, leaf->bytes);
    ++figures_.evicted;
  }
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t free_bytes, root_->free_bytes());
  if (free_bytes >= bytes && free_bytes - bytes >= options_.disk_reserve) return ok_status();
  return note_failure(resource_exhausted("the disk of the KV tier has only " +
                                         std::to_string(free_bytes / 1'000'000) + " MB left"));
}

Status KvTier::write_file(const std::string& file, std::span<const std::byte> record) {
  const std::string temporary = file + std::string(kTemporaryEnding);
  ISTHMUS_RETURN_IF_ERROR(records_->remove(temporary));
  Status done = [&]() -> Status {
    ISTHMUS_ASSIGN_OR_RETURN(const auto opened, records_->open_file(temporary, OpenMode::kCreateNew));
    for (size_t at = 0; at < record.size(); at += kWriteStep) {
      ISTHMUS_RETURN_IF_ERROR(opened->write(record.subspan(at, std::min(kWriteStep, record.size() - at))));
    }
    ISTHMUS_RETURN_IF_ERROR(opened->sync());
    return records_->rename(temporary, *records_, file);
  }();
  if (done.ok()) return records_->sync();
  static_cast<void>(records_->remove(temporary));  // the first error is the one to report
  return done;
}

/// A disk that is full or broken: from now on nothing is written, by this process.
Status KvTier::note_failure(Status status) {
  const bool disk = status.code() == Code::kResourceExhausted || status.code() == Code::kIo;
  if (disk && figures_.read_only.empty()) figures_.read_only = status.message();
  return status;
}

Status KvTier::write(std::span<const std::byte> record) {
  const auto parsed = parse_record(record);
  if (!parsed.ok()) return invalid_argument("not written: " + parsed.status().message());
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!index_) return unavailable("the KV tier has no index");
  if (!figures_.read_only.empty()) {
    return failed_precondition("the KV tier is read-only: " + figures_.read_only);
  }
  flush_uses();
  const KvIndexRow row = index_row(parsed->head, record.size(), now());
  auto parent = index_->find(row.parent);
  if (!parent.ok()) {
    ISTHMUS_RETURN_IF_ERROR(repair(parent.status()));
    parent = index_->find(row.parent);
    ISTHMUS_RETURN_IF_ERROR(parent.status());
  }
  ISTHMUS_ASSIGN_OR_RETURN(const FolderLock held, lock());
  const std::string file = hex_of(row.name);
  // It may be there without all of its keys in the index, where records overlap.
  if (examine(file).ok()) return index_->add({&row, 1});
  ISTHMUS_RETURN_IF_ERROR(make_room(record.size(), *parent));
  const Status written = write_file(file, record);
  if (!written.ok()) return note_failure(written);
  ++figures_.written;
  return note_failure(index_->add({&row, 1}));
}

Result<std::vector<KvIndexRow>> KvTier::list() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!index_) return unavailable("the KV tier has no index");
  flush_uses();
  return index_->rows();
}

Result<uint64_t> KvTier::drop(std::span<const Digest> names) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!index_) return unavailable("the KV tier has no index");
  ISTHMUS_ASSIGN_OR_RETURN(const FolderLock held, lock());
  uint64_t freed = 0;
  for (const Digest& name : names) {
    const auto info = records_->info(hex_of(name));
    ISTHMUS_RETURN_IF_ERROR(records_->remove(hex_of(name)));
    if (info.ok()) freed += info->size;
  }
  ISTHMUS_RETURN_IF_ERROR(index_->remove(names));
  return freed;
}

KvTierFigures KvTier::figures() {
  const std::lock_guard<std::mutex> guard(mutex_);
  KvTierFigures out = figures_;
  const auto rows = index_ ? index_->rows() : Result<std::vector<KvIndexRow>>(std::vector<KvIndexRow>());
  if (!rows.ok()) return out;
  out.records = rows->size();
  for (const KvIndexRow& row : *rows) out.bytes += row.bytes;
  return out;
}

}  // namespace isthmus
