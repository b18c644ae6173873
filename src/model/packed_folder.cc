#include "model/packed_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>

#include "model/packed_cache.h"
#include "os/file.h"
#include "os/paths_folder.h"

namespace isthmus {
namespace {

constexpr std::string_view kEnding = ".packed";
/// No writing takes longer: what is older was left by a crash.
constexpr auto kAbandoned = std::chrono::hours(1);

struct Found {
  std::string name;
  FileInfo info;
};

/// Files of ours in the folder: whole ones, or with `temporary` those being written.
std::vector<Found> list_files(Folder& folder, bool temporary) {
  std::vector<Found> out;
  const auto names = folder.list();
  if (!names.ok()) return out;
  for (const std::string& name : *names) {
    if (temporary ? !is_temporary_name(name) : !name.ends_with(kEnding)) continue;
    const auto info = folder.info(name);
    if (info.ok() && info->is_regular) out.push_back({name, *info});
  }
  return out;
}

bool is_abandoned(const FileInfo& info) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(info.mtime_ns) > kAbandoned;
}

/// Whether the file could still be a hit for somebody.
bool is_useful(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.ok()) return false;
  const auto head = read_packed_head(*file);
  if (!head.ok() || head->key.layout != kPanelLayoutVersion) return false;
  const auto model = file_identity(head->model_path);
  return model.ok() && *model == head->key.parts.front().identity;
}

/// Removes and counts. A failure leaves the file, which costs space and nothing else.
uint64_t remove(Folder& folder, const Found& file) {
  return folder.remove(file.name).ok() ? file.info.size : 0;
}

}  // namespace

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const auto out = std::filesystem::weakly_canonical(path, error);
  return error ? path : out.string();
}

std::string packed_file_name(const std::string& model_path, std::string_view suffix) {
  constexpr char kDigits[] = "0123456789abcdef";
  const std::string path = absolute_path(model_path);
  const uint64_t hash = xxh3_64(std::as_bytes(std::span(path)));
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(hash >> shift) & 15];
  return out.append(suffix).append(kEnding);
}

Result<PackedHead> read_packed_head(const MappedFile& file) {
  std::vector<std::byte> bytes(kPackedAlign);
  const uint64_t size = file.bytes().size();
  if (size < bytes.size()) return corrupt("the packed cache is cut");
  ISTHMUS_RETURN_IF_ERROR(file.read_at(0, bytes));
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t length, packed_head_bytes(bytes));
  if (length > size) return corrupt("the packed cache is cut");
  bytes.resize(static_cast<size_t>(length));
  ISTHMUS_RETURN_IF_ERROR(file.read_at(0, bytes));
  ISTHMUS_ASSIGN_OR_RETURN(PackedHead head, parse_packed_head(bytes));
  if (size - length != head.key.data_bytes)
    return corrupt("the packed cache is not as long as its head says");
  return head;
}

PackedFolderFacts packed_folder_facts(const std::string& folder) {
  PackedFolderFacts out;
  const auto opened = posix_folder(folder, false);
  if (!opened.ok()) return out;
  for (const Found& file : list_files(**opened, false)) {
    ++out.files;
    out.bytes += file.info.size;
  }
  return out;
}

uint64_t remove_packed(const std::string& folder, const std::string& model_path) {
  const auto opened = posix_folder(folder, false);
  if (!opened.ok()) return 0;
  uint64_t freed = 0;
  for (const std::string_view suffix : {std::string_view(), kScreenSuffix}) {
    const std::string name = packed_file_name(model_path, suffix);
    const auto info = (*opened)->info(name);
    if (info.ok()) freed += remove(**opened, {name, *info});
  }
  return freed;
}

uint64_t clean_packed(const std::string& folder, const std::string& keep, uint64_t needed, uint64_t limit) {
  const auto opened = posix_folder(folder, false);
  if (!opened.ok()) return 0;
  uint64_t freed = 0;
  for (const Found& file : list_files(**opened, true)) {
    if (is_abandoned(file.info)) freed += remove(**opened, file);
  }
  std::vector<Found> useful;
  uint64_t held = needed;
  for (Found& file : list_files(**opened, false)) {
    if (file.name == keep) continue;  // about to be replaced
    if (!is_useful(folder + "/" + file.name)) {
      freed += remove(**opened, file);
      continue;
    }
    held += file.info.size;
    useful.push_back(std::move(file));
  }
  std::ranges::sort(useful, {}, [](const Found& file) { return file.info.mtime_ns; });
  for (const Found& file : useful) {
    if (held <= limit) break;
    freed += remove(**opened, file);
    held -= file.info.size;
  }
  return freed;
}

}  // namespace isthmus
