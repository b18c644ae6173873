// Sessions' texts as files, one each, in a folder that belongs to its user alone; docs/formats/session.md has
// their form.
//
//   <name>.session    the text
//
// A file appears whole or not at all (publish_text()); two processes that save one session one after the
// other leave the later text. Files are untrusted: what is read is checked to its last value, or refused
// whole. Errors as in base/session_archive.h. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/session_archive.h"
#include "os/paths_folder.h"

namespace isthmus {

inline constexpr size_t kMaxSessionBytes = size_t{64} << 20;

/// The text of a session file.
std::string write_session(const SessionText& text);
/// kCorrupt says what is wrong; kUnsupported for another version.
Result<SessionText> parse_session(std::string_view json);

class SessionFiles final : public SessionArchive {
 public:
  /// Opens the folder, and makes it where it is absent.
  static Result<std::unique_ptr<SessionFiles>> open(const std::string& path);
  explicit SessionFiles(std::shared_ptr<Folder> folder) : folder_(std::move(folder)) {}

  Status save(const SessionText& text) override;
  Result<SessionText> load(const std::string& name) override;
  Status remove(const std::string& name) override;
  /// Names of the files there, sorted.
  Result<std::vector<std::string>> names();

 private:
  std::shared_ptr<Folder> folder_;
};

/// The standard folder, <state>/sessions.
Result<std::string> standard_session_folder();

}  // namespace isthmus
