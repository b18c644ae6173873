#include "store/hash_memory.h"

#include <chrono>
#include <filesystem>

#include "os/paths.h"
#include "store/json_text.h"
#include "store/sha256.h"

namespace isthmus {
namespace {

constexpr size_t kMaxRecord = 4096;
constexpr auto kSettled = std::chrono::seconds(2);

using Progress = std::function<void(uint64_t, uint64_t)>;

std::string record_name(const FileInfo& info) {
  return std::to_string(info.device) + "-" + std::to_string(info.inode) + ".json";
}

nlohmann::json record_of(const FileInfo& info, const std::string& sha256) {
  // The time as text: JSON readers may round large numbers.
  return {
      {"format", 1}, {"size", info.size}, {"mtime_ns", std::to_string(info.mtime_ns)}, {"sha256", sha256}};
}

/// The remembered digest, "" when there is none for this very content.
std::string recall(Folder& memory, const FileInfo& info) {
  const Result<std::string> text = read_text(memory, record_name(info), kMaxRecord);
  if (!text.ok()) return std::string();
  const auto record = parse_json_object(*text);
  if (!record.ok()) return std::string();
  const auto digest = json_string(*record, "sha256");
  if (!digest.ok() || !is_sha256(*digest) || *record != record_of(info, *digest)) return std::string();
  return *digest;
}

bool is_settled(const FileInfo& info) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(info.mtime_ns) > kSettled;
}

bool same_content(const FileInfo& a, const FileInfo& b) {
  return a.device == b.device && a.inode == b.inode && a.size == b.size && a.mtime_ns == b.mtime_ns;
}

Result<FileDigest> digest_with(const std::string& path, Folder* memory, const StopPolicy& stop,
                               const Progress& progress) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) return not_found("no file '" + path + "'");
  ISTHMUS_ASSIGN_OR_RETURN(const auto folder, posix_folder(real.parent_path().string(), false));
  ISTHMUS_ASSIGN_OR_RETURN(const auto file, folder->open_file(real.filename().string(), OpenMode::kRead));
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo before, file->info());
  if (memory != nullptr) {
    std::string known = recall(*memory, before);
    if (!known.empty()) return FileDigest{std::move(known), true};
  }
  Sha256 hash;
  uint64_t done = 0;
  ISTHMUS_RETURN_IF_ERROR(hash_bytes(*file, before.size, hash, stop, [&](uint64_t step) {
    done += step;
    if (progress) progress(done, before.size);
  }));
  ISTHMUS_ASSIGN_OR_RETURN(std::string digest, hash.finish());
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo after, file->info());
  if (!same_content(before, after)) return failed_precondition("'" + path + "' changed while it was read");
  if (memory != nullptr && is_settled(after)) {
    // Only time is lost when this fails.
    static_cast<void>(publish_text(*memory, record_name(after), json_text(record_of(after, digest))));
  }
  return FileDigest{std::move(digest), false};
}

}  // namespace

Result<FileDigest> file_digest(const std::string& path, Folder& memory, const StopPolicy& stop,
                               const Progress& progress) {
  return digest_with(path, &memory, stop, progress);
}

Result<FileDigest> file_digest(const std::string& path, const StopPolicy& stop, const Progress& progress) {
  const Result<std::string> cache = standard_path(Place::kCache);
  Result<std::shared_ptr<Folder>> memory =
      cache.ok() ? posix_folder(*cache + "/digests", true) : Result<std::shared_ptr<Folder>>(cache.status());
  return digest_with(path, memory.ok() ? memory->get() : nullptr, stop, progress);
}

}  // namespace isthmus
