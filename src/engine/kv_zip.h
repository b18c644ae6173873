// KVzip (Kim et al. 2025, arXiv 2505.23416): which keys a model needs to repeat a text, whatever it will be
// asked about it later.
//
// The text is read once more behind itself, part by part, each part after a request to repeat it; a key's
// worth is the most attention that any of those tokens pays it, the soft-max going over the part and what
// was read behind the text. Costs as much as reading the text, and about half as much again.
#pragma once

#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "engine/language_model.h"
#include "kv/query_record.h"

namespace isthmus {

/// scores[layer that may lose keys][kv head][held key] of `kv`, which read the tokens `text` and has nothing
/// pending; it is not changed. Where keys were given up before, only what was read since is repeated, and the
/// keys that were kept then are worth more than any of it. kFailedPrecondition when `text` is not its text,
/// kResourceExhausted when the context leaves no room behind the text to repeat a part of it, and the errors
/// of a step.
Result<std::vector<std::vector<float>>> kvzip_scores(LanguageModel& model, const AttentionGeometry& geometry,
                                                     const KvSequence& kv, std::span<const TokenId> text,
                                                     Workspace& workspace, const StopPolicy& stop);

}  // namespace isthmus
