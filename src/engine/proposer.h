// Who drafts tokens for the model to verify. A proposer follows the text token by token and guesses how it
// goes on; a wrong guess costs time and never changes the text. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>

#include "model/transformer.h"

namespace isthmus {

/// A guess at the tokens to come.
struct Draft {
  size_t tokens = 0;  // how many were written
  /// How much speaks for it: for looked-up drafts the number of tokens before it that agree.
  size_t match = 0;
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  /// The text goes on with `token`.
  virtual void push(TokenId token) = 0;
  /// Writes at most out.size() tokens that may follow the text.
  virtual Draft propose(std::span<TokenId> out) = 0;
};

}  // namespace isthmus
