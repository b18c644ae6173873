// Synthetic retrieval tasks in the manner of RULER (Hsieh et al. 2024, arXiv 2404.06654): numbers hidden in a
// long text of which one is asked for. The same seed gives the same tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace isthmus::cli {

struct RetrievalTask {
  std::vector<TokenId> context;
  std::vector<TokenId> question;
  std::vector<TokenId> answer;
};

/// A task of about `tokens` tokens of context with `needles` numbers, the one asked for at `depth` in [0, 1]
/// of the text. The hay is sentences of `text`, or made up where that is empty. kInvalidArgument when there
/// is no room for the needles.
Result<RetrievalTask> make_retrieval_task(const Tokenizer& tokenizer, const std::string& text, size_t tokens,
                                          size_t needles, double depth, Rng& rng);

}  // namespace isthmus::cli
