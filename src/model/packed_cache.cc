#include "model/packed_cache.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>

#include "model/packed_folder.h"
#include "os/cpu.h"
#include "os/paths_folder.h"

namespace isthmus {
namespace {

/// Read and checked at a time: small enough to be in the second-level cache when the checksum is taken.
constexpr uint64_t kReadBytes = 4 * kPackedPieceBytes;
constexpr uint64_t kWriteBytes = uint64_t{1} << 20;
/// Left free on the disk beside the file.
constexpr uint64_t kDiskReserve = uint64_t{1} << 30;

std::vector<uint64_t> checksums_of(std::span<const std::byte> data) {
  std::vector<uint64_t> out;
  for (uint64_t at = 0; at < data.size(); at += kPackedPieceBytes) {
    out.push_back(xxh3_64(data.subspan(at, std::min<uint64_t>(kPackedPieceBytes, data.size() - at))));
  }
  return out;
}

Status read_pieces(const MappedFile& file, const PackedHead& head, uint64_t head_bytes, uint64_t first,
                   uint64_t last, std::byte* out) {
  for (uint64_t at = first; at < last; at += kReadBytes) {
    const std::span<std::byte> bytes(out + at, std::min(kReadBytes, last - at));
    ISTHMUS_RETURN_IF_ERROR(file.read_at(head_bytes + at, bytes));
    for (uint64_t from = 0; from < bytes.size(); from += kPackedPieceBytes) {
      const auto piece = bytes.subspan(from, std::min<uint64_t>(kPackedPieceBytes, bytes.size() - from));
      if (xxh3_64(piece) != head.checksums[(at + from) / kPackedPieceBytes]) {
        return corrupt("wrong checksum of the data at " + std::to_string(at + from));
      }
    }
  }
  return ok_status();
}

/// Why the file of this model's name does not hold what is needed.
Status check_key(const PackedKey& found, const PackedKey& wanted) {
  if (found.layout != wanted.layout) return failed_precondition("packed for another version of the program");
  if (found.parts != wanted.parts) return failed_precondition("the model's file has changed");
  if (found != wanted) return failed_precondition("packed for another use of the model");
  return ok_status();
}

}  // namespace

PackedCacheOptions standard_packed_cache(const EnvLookup& env) {
  PackedCacheOptions out;
  const std::string wish = env("ISTHMUS_PACKED_CACHE").value_or("on");
  if (wish == "off") return out;
  const auto cache = standard_path(Place::kCache, env);
  if (wish != "on") {
    out.why_off = "ISTHMUS_PACKED_CACHE is '" + wish + "'; known are on and off";
  } else if (cache.ok()) {
    out.folder = *cache + "/packed";
  } else {
    out.why_off = cache.status().message();
  }
  return out;
}

std::string_view packed_state_name(PackedState state) {
  switch (state) {
    case PackedState::kOff:
      return "off";
    case PackedState::kHit:
      return "hit";
    case PackedState::kWriting:
      return "writing";
    case PackedState::kWritten:
      return "written";
    case PackedState::kFailed:
      return "failed";
  }
  return "";
}

PackedCache::PackedCache(const GgufFile& file, bool float32, uint64_t data_bytes,
                         std::vector<PackedEntry> entries, PackedCacheOptions options, StopPolicy stop,
                         std::string_view suffix)
    : options_(std::move(options)), stop_(std::move(stop)), model_paths_(file.paths()) {
  const auto parts = file.part_facts();
  if (options_.folder.empty())
    report_.reason = options_.why_off.empty() ? "switched off" : options_.why_off;
  else if (float32)
    report_.reason = "weights expanded to float32 are not kept";
  else if (parts.empty())
    report_.reason = "the model is not a file";
  if (!report_.reason.empty()) return;
  for (const auto& part : parts) key_.parts.push_back({part.identity, xxh3_128(part.head)});
  key_.float32 = float32;
  key_.data_bytes = data_bytes;
  key_.entries = std::move(entries);
  if (options_.files == nullptr) options_.files = &real_file_system();
  name_ = packed_file_name(model_paths_.front(), suffix);
  path_ = options_.folder + "/" + name_;
}

PackedCache::~PackedCache() {
  if (writer_.joinable()) writer_.join();
}

void PackedCache::set(PackedState state, std::string reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  report_ = {state, std::move(reason)};
}

PackedReport PackedCache::report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return report_;
}

Result<HugeArena> PackedCache::read(ThreadPool& pool) {
  if (path_.empty()) return failed_precondition("the packed cache is off");
  auto data = read_checked(pool);
  set(data.ok() ? PackedState::kHit : PackedState::kWriting, data.ok() ? "" : data.status().message());
  return data;
}

Result<HugeArena> PackedCache::read_checked(ThreadPool& pool) const {
  auto opened = MappedFile::open(path_);
  if (opened.status().code() == Code::kNotFound) return not_found("there was none");
  ISTHMUS_RETURN_IF_ERROR(opened.status());
  const MappedFile& file = *opened;
  ISTHMUS_ASSIGN_OR_RETURN(const PackedHead head, read_packed_head(file));
  ISTHMUS_RETURN_IF_ERROR(check_key(head.key, key_));
  ISTHMUS_ASSIGN_OR_RETURN(HugeArena arena, HugeArena::allocate(static_cast<size_t>(key_.data_bytes)));
  const uint64_t head_bytes = file.bytes().size() - key_.data_bytes;
  std::mutex mutex;
  Status first_error;
  pool.run([&](Worker& worker) {
    const auto [first, last] = worker.range(key_.data_bytes, HugeArena::kPageBytes);
    Status status = read_pieces(file, head, head_bytes, first, last, arena.data());
    const std::lock_guard<std::mutex> lock(mutex);
    if (first_error.ok()) first_error = std::move(status);
  });
  ISTHMUS_RETURN_IF_ERROR(first_error);
  return arena;
}

void PackedCache::write(std::span<const std::byte> data) {
  if (path_.empty()) return;
  const auto body = [this, data] {
    // Generating comes first; a refusal only means that this takes its turn with it.
    static_cast<void>(os::make_this_thread_background());
    const Status written = write_file(data.first(static_cast<size_t>(key_.data_bytes)));
    if (written.ok()) {
      set(PackedState::kWritten, report().reason);
    } else {
      set(PackedState::kFailed, written.message());
    }
  };
  try {
    writer_ = std::thread(body);
  } catch (const std::system_error& error) {
    set(PackedState::kFailed, std::string("no thread to write it: ") + error.what());
  }
}

Status PackedCache::check_model() const {
  for (size_t i = 0; i < model_paths_.size(); ++i) {
    ISTHMUS_ASSIGN_OR_RETURN(const FileIdentity now, file_identity(model_paths_[i]));
    if (now != key_.parts[i].identity) return failed_precondition("the model's file has changed meanwhile");
  }
  return ok_status();
}

Status PackedCache::write_file(std::span<const std::byte> data) const {
  // The folder itself is always a real one: what a test makes fail is the writing.
  ISTHMUS_ASSIGN_OR_RETURN(const auto folder, posix_folder(options_.folder, true));
  PackedHead head{key_, absolute_path(model_paths_.front()), checksums_of(data)};
  const std::vector<std::byte> head_bytes = encode_packed_head(head);
  const uint64_t needed = head_bytes.size() + data.size();
  if (needed > options_.limit) return resource_exhausted("larger than all of the packed cache may be");
  clean_packed(options_.folder, name_, needed, options_.limit);
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t free_bytes, folder->free_bytes());
  if (free_bytes < needed || free_bytes - needed < kDiskReserve) {
    return resource_exhausted("the disk of the packed cache has only " +
                              std::to_string(free_bytes / 1000000) + " MB left");
  }
  ISTHMUS_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(*options_.files, path_));
  ISTHMUS_RETURN_IF_ERROR(file.append(head_bytes));
  for (uint64_t at = 0; at < data.size(); at += kWriteBytes) {
    ISTHMUS_RETURN_IF_ERROR(stop_.check());
    ISTHMUS_RETURN_IF_ERROR(file.append(data.subspan(at, std::min(kWriteBytes, data.size() - at))));
  }
  // What was packed must be the file that the head names.
  ISTHMUS_RETURN_IF_ERROR(check_model());
  return file.publish();
}

}  // namespace isthmus
