#include "store/partial_file.h"

#include <algorithm>

#include "store/json_text.h"

namespace isthmus {
namespace {

constexpr uint64_t kSyncStep = uint64_t{64} << 20;
constexpr size_t kMaxRecord = 65536;
constexpr uint64_t kRecordFormat = 1;

}  // namespace

Result<std::unique_ptr<PartialFile>> PartialFile::open(Folder& folder, const std::string& key,
                                                       const std::string& source, bool trust_unsynced,
                                                       const StopPolicy& stop,
                                                       const std::function<void(uint64_t)>& progress) {
  std::unique_ptr<PartialFile> out(new PartialFile(folder, key, source));
  ISTHMUS_ASSIGN_OR_RETURN(out->file_, folder.open_file(out->data_name(), OpenMode::kUpdate));
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, out->file_->info());
  out->load_record(trust_unsynced, info.size);
  ISTHMUS_RETURN_IF_ERROR(out->file_->truncate(out->size_));
  ISTHMUS_RETURN_IF_ERROR(out->rehash(stop, progress));
  return out;
}

void PartialFile::load_record(bool trust_unsynced, uint64_t file_size) {
  const Result<std::string> text = read_text(folder_, record_name(), kMaxRecord);
  if (!text.ok()) return;
  const auto record = parse_json_object(*text);
  if (!record.ok()) return;
  const auto format = json_uint(*record, "format");
  const auto source = json_string(*record, "source");
  const auto parts = json_uint(*record, "parts_done");
  const auto begin = json_uint(*record, "part_begin");
  const auto safe = json_uint(*record, "safe");
  const auto validator = json_string(*record, "validator");
  const auto linked = json_string(*record, "linked_sha256");
  if (!format.ok() || *format != kRecordFormat || !source.ok() || *source != source_ || !parts.ok() ||
      !begin.ok() || !safe.ok() || !validator.ok() || !linked.ok()) {
    return;
  }
  if (*begin > *safe || *safe > file_size) return;
  parts_done_ = static_cast<size_t>(*parts);
  part_begin_ = *begin;
  validator_ = *validator;
  linked_sha256_ = *linked;
  safe_ = *safe;
  size_ = trust_unsynced ? file_size : *safe;
}

Status PartialFile::rehash(const StopPolicy& stop, const std::function<void(uint64_t)>& progress) {
  hash_ = Sha256();
  ISTHMUS_RETURN_IF_ERROR(file_->seek(0));
  ISTHMUS_RETURN_IF_ERROR(hash_bytes(*file_, size_, hash_, stop, progress));
  return file_->seek(size_);
}

Status PartialFile::append(std::span<const std::byte> bytes) {
  ISTHMUS_RETURN_IF_ERROR(file_->write(bytes));
  hash_.update(bytes);
  size_ += bytes.size();
  return size_ - safe_ >= kSyncStep ? checkpoint() : ok_status();
}

Status PartialFile::cut(uint64_t size, const StopPolicy& stop) {
  if (size == size_) return ok_status();
  if (size > size_) return internal_error("cutting a partial file to more than it has");
  // First the record, so that it never promises more than there is.
  size_ = size;
  safe_ = std::min(safe_, size);
  part_begin_ = std::min(part_begin_, size);
  ISTHMUS_RETURN_IF_ERROR(write_record());
  ISTHMUS_RETURN_IF_ERROR(file_->truncate(size));
  return rehash(stop, nullptr);
}

Status PartialFile::set_validator(const std::string& validator, const std::string& linked_sha256) {
  if (validator == validator_ && linked_sha256 == linked_sha256_) return ok_status();
  validator_ = validator;
  linked_sha256_ = linked_sha256;
  return write_record();
}

Status PartialFile::finish_part() {
  ++parts_done_;
  part_begin_ = size_;
  validator_.clear();
  return checkpoint();
}

Status PartialFile::checkpoint() {
  ISTHMUS_RETURN_IF_ERROR(file_->sync());
  safe_ = size_;
  return write_record();
}

Status PartialFile::write_record() {
  const nlohmann::json record = {
      {"format", kRecordFormat},        {"source", source_}, {"parts_done", parts_done_},
      {"part_begin", part_begin_},      {"safe", safe_},     {"validator", validator_},
      {"linked_sha256", linked_sha256_}};
  return publish_text(folder_, record_name(), json_text(record));
}

Result<std::string> PartialFile::head(size_t count) {
  ISTHMUS_RETURN_IF_ERROR(file_->seek(0));
  std::string out(count, '\0');
  size_t have = 0;
  while (have < count) {
    ISTHMUS_ASSIGN_OR_RETURN(const size_t got,
                             file_->read(std::as_writable_bytes(std::span(out)).subspan(have)));
    if (got == 0) break;
    have += got;
  }
  out.resize(have);
  ISTHMUS_RETURN_IF_ERROR(file_->seek(size_));
  return out;
}

Result<std::string> PartialFile::finish_digest() { return hash_.finish(); }

Status PartialFile::publish(Folder& target, const std::string& name) {
  ISTHMUS_RETURN_IF_ERROR(file_->sync());
  file_.reset();
  ISTHMUS_RETURN_IF_ERROR(folder_.make_read_only(data_name()));
  ISTHMUS_RETURN_IF_ERROR(folder_.rename(data_name(), target, name));
  ISTHMUS_RETURN_IF_ERROR(target.sync());
  ISTHMUS_RETURN_IF_ERROR(folder_.remove(record_name()));
  return folder_.sync();
}

Status PartialFile::drop() {
  file_.reset();
  ISTHMUS_RETURN_IF_ERROR(folder_.remove(record_name()));
  return folder_.remove(data_name());
}

}  // namespace isthmus
