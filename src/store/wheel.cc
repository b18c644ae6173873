#include "store/wheel.h"

#include <zip.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/suggest.h"
#include "store/model_source.h"

namespace isthmus {
namespace {

constexpr size_t kUnpackStep = size_t{1} << 18;
constexpr uint64_t kFreeOutput = uint64_t{16} << 20;  // a small file may compress as well as it likes
constexpr uint32_t kUnixTypeMask = 0170000;
constexpr uint32_t kUnixRegular = 0100000;

struct ZipClose {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct ZipFileClose {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, ZipClose>;

struct Member {
  zip_uint64_t index = 0;
  std::string name;
  uint64_t size = 0;
  uint64_t packed = 0;
};

std::string text_of(zip_error_t* error) {
  std::string out = zip_error_strerror(error);
  zip_error_fini(error);
  return out;
}

Status check_kind(zip_t* archive, zip_uint64_t index, const zip_stat_t& st) {
  const std::string name = st.name;
  if (st.encryption_method != ZIP_EM_NONE) return unsupported("the member '" + name + "' is encrypted");
  if (st.comp_method != ZIP_CM_STORE && st.comp_method != ZIP_CM_DEFLATE) {
    return unsupported("the member '" + name + "' is packed with method " + std::to_string(st.comp_method));
  }
  zip_uint8_t system = 0;
  zip_uint32_t attributes = 0;
  if (zip_file_get_external_attributes(archive, index, 0, &system, &attributes) != 0) {
    return corrupt("the member '" + name + "' has no attributes");
  }
  const uint32_t type = (attributes >> 16) & kUnixTypeMask;
  if (system == ZIP_OPSYS_UNIX && type != 0 && type != kUnixRegular) {
    return unsupported("the member '" + name + "' is not a regular file");
  }
  return ok_status();
}

/// The members that match, in natural order.
Result<std::vector<Member>> find_members(zip_t* archive, const std::string& pattern,
                                         const WheelLimits& limits) {
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  if (count < 0 || static_cast<uint64_t>(count) > limits.max_members) {
    return resource_exhausted("an archive of " + std::to_string(count) + " members");
  }
  std::vector<Member> found;
  std::vector<std::string> others;
  for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
    zip_stat_t st;
    zip_stat_init(&st);
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                     ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(archive, i, 0, &st) != 0 || (st.valid & kNeeded) != kNeeded) {
      return corrupt("member " + std::to_string(i) + " of the archive cannot be read");
    }
    if (!glob_match(pattern, st.name)) {
      others.emplace_back(st.name);
      continue;
    }
    ISTHMUS_RETURN_IF_ERROR(check_kind(archive, i, st));
    found.push_back({i, st.name, st.size, st.comp_size});
  }
  if (found.empty()) {
    return not_found("no member '" + pattern + "' in the package" + did_you_mean(pattern, others));
  }
  std::sort(found.begin(), found.end(),
            [](const Member& a, const Member& b) { return natural_less(a.name, b.name); });
  for (size_t i = 1; i < found.size(); ++i) {
    if (found[i].name == found[i - 1].name)
      return corrupt("the archive has the member '" + found[i].name + "' twice");
  }
  return found;
}

Status stream_member(zip_t* archive, const Member& member, const WheelLimits& limits, const StopPolicy& stop,
                     uint64_t& total, const ByteConsumer& consume) {
  const std::unique_ptr<zip_file_t, ZipFileClose> file(zip_fopen_index(archive, member.index, 0));
  if (!file) return corrupt("the member '" + member.name + "': " + text_of(zip_get_error(archive)));
  std::vector<std::byte> buffer(kUnpackStep);
  uint64_t done = 0;
  for (;;) {
    ISTHMUS_RETURN_IF_ERROR(stop.check());
    const zip_int64_t got = zip_fread(file.get(), buffer.data(), buffer.size());
    if (got < 0) {
      return corrupt("the member '" + member.name +
                     "': " + zip_error_strerror(zip_file_get_error(file.get())));
    }
    if (got == 0) break;
    done += static_cast<uint64_t>(got);
    total += static_cast<uint64_t>(got);
    if (done > member.size) return corrupt("the member '" + member.name + "' is longer than it says");
    if (total > limits.max_bytes) {
      return resource_exhausted("the package holds over " + std::to_string(limits.max_bytes) +
                                " bytes for the model");
    }
    if (done > kFreeOutput && done / limits.max_ratio > member.packed) {
      return resource_exhausted("the member '" + member.name + "' unpacks to over " +
                                std::to_string(limits.max_ratio) + " times its size");
    }
    ISTHMUS_RETURN_IF_ERROR(consume(std::span(buffer).first(static_cast<size_t>(got))));
  }
  if (done != member.size) return corrupt("the member '" + member.name + "' is shorter than it says");
  return ok_status();
}

Status extract(zip_source_t* source, const std::string& pattern, const WheelLimits& limits,
               const StopPolicy& stop, const ByteConsumer& consume) {
  zip_error_t error;
  zip_error_init(&error);
  const Archive archive(zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error));
  if (!archive) {
    zip_source_free(source);
    return corrupt("not a usable zip archive: " + text_of(&error));
  }
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<Member> members, find_members(archive.get(), pattern, limits));
  uint64_t total = 0;
  for (const Member& member : members) {
    ISTHMUS_RETURN_IF_ERROR(stream_member(archive.get(), member, limits, stop, total, consume));
  }
  return ok_status();
}

}  // namespace

bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i;
      ++j;
      continue;
    }
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    const size_t a_begin = i;
    const size_t b_begin = j;
    while (i < a.size() && digit(a[i])) ++i;
    while (j < b.size() && digit(b[j])) ++j;
    if (i - a_begin != j - b_begin) return i - a_begin < j - b_begin;
    const int order = a.compare(a_begin, i - a_begin, b, b_begin, j - b_begin);
    if (order != 0) return order < 0;
  }
  if (i == a.size() && j == b.size()) return a < b;  // "01" and "1": any fixed order
  return i == a.size();
}

Status extract_from_wheel(const std::string& path, const std::string& pattern, const WheelLimits& limits,
                          const StopPolicy& stop, const ByteConsumer& consume) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_file_create(path.c_str(), 0, -1, &error);
  if (source == nullptr) return io_error("opening " + path + ": " + text_of(&error));
  return extract(source, pattern, limits, stop, consume);
}

Status extract_from_wheel_bytes(std::span<const std::byte> archive, const std::string& pattern,
                                const WheelLimits& limits, const StopPolicy& stop,
                                const ByteConsumer& consume) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(archive.data(), archive.size(), 0, &error);
  if (source == nullptr) return resource_exhausted("no memory for an archive: " + text_of(&error));
  return extract(source, pattern, limits, stop, consume);
}

}  // namespace isthmus
