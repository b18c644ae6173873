// Finds stop strings in a stream of text pieces, across their borders.
//
// Text that may still become a stop string is held back; everything else comes out at once. The stop string
// itself is not emitted. When two match, the one that begins first wins, the longer one on ties. Not
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

class StopMatcher {
 public:
  /// Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Adds text; returns what may be shown now. After a match nothing more comes out.
  std::string push(std::string_view text);
  /// The held-back text at the end of the stream (empty after a match).
  std::string finish();
  bool matched() const { return !matched_.empty(); }
  /// The stop string that matched.
  const std::string& match() const { return matched_; }

 private:
  size_t held_suffix() const;

  std::vector<std::string> stops_;
  std::string pending_;
  std::string matched_;
};

}  // namespace isthmus
