// The positions of a text's tokens where they leave gaps, as in a text put together of parts that were read
// apart. Without a gap token i stands at position i. A value; not thread-safe.
#pragma once

#include <cstddef>
#include <vector>

namespace isthmus {

class TokenPositions {
 public:
  bool gaps() const { return !jumps_.empty(); }
  /// Position of token `token`.
  size_t of(size_t token) const { return token + shift_at(token); }
  /// The first token at `position` or behind it.
  size_t first_from(size_t position) const;
  /// Tokens from `token` on stand at `position` and behind it. `token` is not before an earlier jump, and
  /// `position` not before of(token).
  void jump(size_t token, size_t position);
  /// Forgets the jumps behind token `length`; one at it stays.
  void cut(size_t length);
  void clear() { jumps_.clear(); }

 private:
  struct Jump {
    size_t token;
    size_t shift;  // of this token and those behind it
  };
  size_t shift_at(size_t token) const;

  std::vector<Jump> jumps_;  // ascending in both
};

}  // namespace isthmus
