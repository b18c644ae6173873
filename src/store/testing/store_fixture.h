// What the tests of the store share: a temporary folder, small model files, wheels, and a fake Python whose
// "pip" takes wheels from a folder. Test code only.
#pragma once

#include <gtest/gtest.h>
#include <zip.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "store/sha256.h"

namespace isthmus::testing {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "isthmus-store-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Bytes that begin like a GGUF file.
inline std::string model_bytes(size_t size, unsigned salt = 0) {
  std::string out = "GGUF";
  unsigned state = salt * 2654435761u + 12345u;
  while (out.size() < size) {
    state = state * 1664525u + 1013904223u;
    out += static_cast<char>(state >> 24);
  }
  return out;
}

struct ZipMember {
  std::string name;
  std::string text;
  bool deflate = true;
  uint32_t unix_mode = 0100644;
};

inline void write_zip(const std::string& path, const std::vector<ZipMember>& members) {
  int error = 0;
  zip_t* zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  ASSERT_NE(zip, nullptr);
  for (const ZipMember& member : members) {
    zip_source_t* source = zip_source_buffer(zip, member.text.data(), member.text.size(), 0);
    const zip_int64_t index = zip_file_add(zip, member.name.c_str(), source, ZIP_FL_ENC_UTF_8);
    ASSERT_GE(index, 0);
    const auto at = static_cast<zip_uint64_t>(index);
    zip_set_file_compression(zip, at, member.deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    zip_file_set_external_attributes(zip, at, 0, ZIP_OPSYS_UNIX, member.unix_mode << 16);
  }
  ASSERT_EQ(zip_close(zip), 0);
}

/// Writes `folder`/python: run as "python -m pip download ... --dest DIR PKG==VER" it notes the call in
/// `folder`/calls and copies `folder`/PKG-VER.whl to DIR. `first` is shell code that runs before.
inline std::string fake_python(const std::string& folder, const std::string& first = "") {
  const std::string path = folder + "/python";
  write_file(path, "#!/bin/sh\nhere='" + folder +
                       "'\n"
                       "for last; do :; done\n"
                       "while [ \"$1\" != --dest ]; do shift; done\n"
                       "dest=$2; wheel=$(printf %s \"$last\" | sed 's/==/-/').whl\n"
                       "echo \"$last\" >> \"$here/calls\"\n" +
                       first +
                       "\nif [ ! -f \"$here/$wheel\" ]; then\n"
                       "  echo \"ERROR: No matching distribution found for $last\" >&2; exit 1\nfi\n"
                       "cp \"$here/$wheel\" \"$dest/\"\n");
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

inline size_t count_lines(const std::string& path) {
  const std::string text = read_file(path);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace isthmus::testing
