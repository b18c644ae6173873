// A pull as a person sees it: progress bar, licence shown and asked for, notices; on stderr.
#pragma once

#include <string>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "store/pull.h"

namespace isthmus::cli {

/// Pulls `reference` into the store of `flags`; callbacks and the stop token of `options` are set here.
/// `quiet` shows no progress.
Result<PullOutcome> pull_showing_progress(const std::string& reference, const StoreFlags& flags,
                                          PullOptions options, bool quiet, const Context& context);

}  // namespace isthmus::cli
