// Brings a model into the store: finds what is meant, asks about its licence, fetches, checks, publishes.
//
// Two pulls of one model at once, in any processes, make one download: the second waits for the first. An
// interrupted pull goes on where it stopped. Nothing is visible in the store before its size and SHA-256 are
// right (for a source without a known digest: before it is a GGUF file). Blocking; stopped by options.stop;
// callbacks run on the calling thread. Errors: kInvalidArgument, kNotFound (with suggestions),
// kFailedPrecondition (licence not accepted, login needed, no Python), kResourceExhausted (disk), kCorrupt
// (wrong bytes), kUnavailable (network), kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/cancel.h"
#include "base/status.h"
#include "net/download.h"
#include "os/paths.h"
#include "store/catalogue.h"
#include "store/model_store.h"

namespace isthmus {

enum class PullPhase {
  kWaiting,   // for another pull of the same model
  kResuming,  // reading again what an earlier pull left
  kDownloading,
  kUnpacking,  // out of a package
  kCopying,    // a local file
  kPublishing,
};

/// "waiting", "resuming", ...
std::string_view phase_name(PullPhase phase);

struct PullProgress {
  PullPhase phase = PullPhase::kDownloading;
  uint64_t done = 0;   // bytes of the model
  uint64_t total = 0;  // 0: not known
  size_t part = 0;     // from 1
  size_t parts = 0;
  std::string source;
};

struct PullOptions {
  std::string name;    // what to call it; empty: the catalogue's name, or one made of the file name
  std::string sha256;  // what the file of a source without catalogue entry must have; may be empty
  bool accept_licence = false;
  std::function<bool(const Licence&)>
      ask_licence;  // asked when terms must be accepted and were not; may be empty
  std::function<void(const Licence&)> show_licence;  // told before the download; may be empty
  std::function<void(const PullProgress&)> progress;
  std::function<void(const std::string&)> notice;  // retries and failed sources, one sentence each
  bool again = false;                              // fetch even when the name is there already
  uint64_t max_bytes = uint64_t{1} << 40;
  StopPolicy stop;
  DownloadOptions download;  // http.stop is set from `stop`
  EnvLookup env = process_env;
  std::string python;  // empty: ISTHMUS_PYTHON, else "python3"
};

struct PullOutcome {
  Manifest manifest;
  std::string path;
  bool was_here = false;  // nothing had to be fetched
};

/// `reference` is a catalogue name or alias, a source (model_source.h), or a path.
Result<PullOutcome> pull_model(ModelStore& store, const Catalogue& catalogue, const std::string& reference,
                               const PullOptions& options);

struct ResolvedModel {
  std::string path;
  std::string name;    // empty: given as a path
  std::string sha256;  // empty: given as a path
};

/// The answer of resolve_model() for what names a file, or looks like a path; nullopt for a name, which needs
/// the store.
std::optional<Result<ResolvedModel>> resolve_file(const std::string& reference);
/// The file that MODEL on a command line means: a path, a name in the store, an alias of the catalogue, or
/// the source of a pulled model. kNotFound says how to get it, or what was probably meant.
Result<ResolvedModel> resolve_model(const ModelStore& store, const Catalogue& catalogue,
                                    const std::string& reference);

}  // namespace isthmus
