#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "format/gguf_impl.h"
#include "format/gguf_limits.h"
#include "format/gguf_split.h"

namespace isthmus {
namespace {

/// One file, mapped and parsed.
struct LoadedPart {
  MappedFile map;
  GgufPart part;
  SplitFacts split;
};

Result<LoadedPart> load_part(const std::string& path, uint32_t index) {
  ISTHMUS_ASSIGN_OR_RETURN(auto map, MappedFile::open(path));
  auto part = parse_gguf_part(map.bytes(), index);
  ISTHMUS_RETURN_IF_ERROR(map.intact());  // else zeros were judged, not the file
  if (!part.ok()) return part.status().with_context(path);
  const auto split = split_facts(*part);
  if (!split.ok()) return split.status().with_context(path);
  return LoadedPart{std::move(map), std::move(part).value(), *split};
}

Result<LoadedPart> load_sister(const std::string& path, uint32_t index, uint64_t count) {
  ISTHMUS_ASSIGN_OR_RETURN(auto loaded, load_part(path, index));
  if (loaded.split.no == index && loaded.split.count == count) return loaded;
  return corrupt(fmt::format("{}: it says that it is part {} of {}, its name says {} of {}", path,
                             loaded.split.no + 1, loaded.split.count, index + 1, count));
}

}  // namespace

Status GgufFile::Impl::add_part(std::span<const std::byte> bytes, GgufPart part) {
  const bool first = file_bytes == 0;
  file_bytes += bytes.size();
  if (first) {
    version = part.version;
    entries = std::move(part.entries);
  }
  if (tensors.size() + part.tensors.size() > kGgufMaxTensors) {
    return resource_exhausted(fmt::format("the parts have more than {} tensors together", kGgufMaxTensors));
  }
  std::ranges::move(part.tensors, std::back_inserter(tensors));
  return ok_status();
}

Status GgufFile::Impl::index() {
  entries_by_key.resize(entries.size());
  std::iota(entries_by_key.begin(), entries_by_key.end(), 0u);
  std::ranges::sort(entries_by_key, {}, [this](uint32_t i) { return entries[i].key; });
  tensors_by_name.resize(tensors.size());
  std::iota(tensors_by_name.begin(), tensors_by_name.end(), 0u);
  const auto name_of = [this](uint32_t i) -> std::string_view { return tensors[i].name; };
  std::ranges::sort(tensors_by_name, {}, name_of);
  const auto twin = std::ranges::adjacent_find(tensors_by_name, {}, name_of);
  if (twin == tensors_by_name.end()) return ok_status();
  return corrupt(fmt::format("tensor {} is in more than one part", quote_untrusted(name_of(*twin))));
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& label) {
  auto part = parse_gguf_part(bytes, 0);
  if (!part.ok()) return part.status().with_context(label);
  const auto split = split_facts(*part);
  if (!split.ok()) return split.status().with_context(label);
  if (split->count > 1)
    return unsupported(fmt::format("{}: one part of a split model cannot be read alone", label));
  auto impl = std::make_unique<Impl>();
  impl->paths.push_back(label);
  auto status = impl->add_part(bytes, std::move(part).value());
  if (status.ok()) status = impl->index();
  if (!status.ok()) return status.with_context(label);
  return GgufFile(std::move(impl));
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(auto loaded, load_part(path, 0));
  const auto split = loaded.split;
  auto paths = split_paths(path, split.count);
  if (!paths.ok()) return paths.status().with_context(path);
  auto impl = std::make_unique<Impl>();
  impl->paths = std::move(paths).value();
  for (uint32_t i = 0; i < impl->paths.size(); ++i) {
    if (split.count > 1) {
      ISTHMUS_ASSIGN_OR_RETURN(loaded, load_sister(impl->paths[i], i, split.count));
    }
    const auto added = impl->add_part(loaded.map.bytes(), std::move(loaded.part));
    if (!added.ok()) return added.with_context(impl->paths[i]);
    impl->maps.push_back(std::move(loaded.map));
  }
  if (split.count > 1 && split.tensors && *split.tensors != impl->tensors.size()) {
    return corrupt(fmt::format("{}: the parts have {} tensors together, split.tensors.count says {}", path,
                               impl->tensors.size(), *split.tensors));
  }
  const auto status = impl->index();
  if (!status.ok()) return status.with_context(path);
  return GgufFile(std::move(impl));
}

uint32_t GgufFile::version() const { return impl_->version; }
const std::vector<std::string>& GgufFile::paths() const { return impl_->paths; }
uint64_t GgufFile::file_bytes() const { return impl_->file_bytes; }
const std::vector<GgufTensor>& GgufFile::tensors() const { return impl_->tensors; }

std::vector<GgufPartFacts> GgufFile::part_facts() const {
  std::vector<GgufPartFacts> out;
  for (const auto& map : impl_->maps) out.push_back({map.identity(), map.bytes()});
  for (const auto& tensor : impl_->tensors) {
    if (tensor.part >= out.size()) continue;
    auto& head = out[tensor.part].head;
    head = head.first(std::min<size_t>(head.size(), static_cast<size_t>(tensor.file_offset)));
  }
  return out;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto name_of = [this](uint32_t i) -> std::string_view { return impl_->tensors[i].name; };
  const auto at = std::ranges::lower_bound(impl_->tensors_by_name, name, {}, name_of);
  if (at == impl_->tensors_by_name.end() || name_of(*at) != name) return nullptr;
  return &impl_->tensors[*at];
}

Result<const GgufTensor*> GgufFile::tensor(std::string_view name) const {
  const auto* found = find(name);
  if (found != nullptr) return found;
  return not_found(
      fmt::format("{}: there is no tensor named {}", impl_->paths.front(), quote_untrusted(name)));
}

void GgufFile::release_pages(const GgufTensor& tensor, uint64_t offset, uint64_t length) const {
  if (tensor.part >= impl_->maps.size()) return;  // bytes in memory belong to the caller
  // A page fault brings in what is cached of the 64 KiB around it (Linux, fault_around_bytes), so neighbours
  // on both sides are resident too.
  constexpr size_t kAround = size_t{64} << 10;
  const auto at = static_cast<size_t>(tensor.file_offset + offset);
  const size_t first = at - std::min(at, kAround);
  // Advice only: a refusal leaves the pages where they are, which costs memory and nothing else.
  static_cast<void>(impl_->maps[tensor.part].advise(MappedFile::Advice::kDrop, first,
                                                    at - first + static_cast<size_t>(length) + kAround));
}

void GgufFile::release_pages() const {
  for (const auto& map : impl_->maps) {
    static_cast<void>(map.advise(MappedFile::Advice::kDrop, 0, map.bytes().size()));
  }
}

Status GgufFile::read(const GgufTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  if (offset > tensor.data.size() || out.size() > tensor.data.size() - offset) {
    return invalid_argument(fmt::format("{}: {} bytes at {} lie outside of tensor {}", impl_->paths.front(),
                                        out.size(), offset, quote_untrusted(tensor.name)));
  }
  if (tensor.part < impl_->maps.size()) {
    return impl_->maps[tensor.part].read_at(tensor.file_offset + offset, out);
  }
  std::ranges::copy(tensor.data.subspan(static_cast<size_t>(offset), out.size()), out.begin());
  return ok_status();
}

Status GgufFile::intact() const {
  for (const auto& map : impl_->maps) ISTHMUS_RETURN_IF_ERROR(map.intact());
  return ok_status();
}

}  // namespace isthmus
