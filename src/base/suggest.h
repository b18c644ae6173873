// "Did you mean": the candidates that a mistyped word most likely stands for.
//
// Pure functions without state. Distances are counted in bytes, letters of any case being equal, and a swap
// of two neighbours counts as one edit (optimal string alignment distance). Words over 256 bytes get no
// suggestion.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

/// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`, ignoring the case of ASCII
/// letters.
size_t edit_distance(std::string_view a, std::string_view b);

/// At most `limit` of `candidates`, best first: those within one edit per three letters of `word` (at least
/// one), then those that `word` (two letters or more) begins.
std::vector<std::string> suggest(std::string_view word, std::span<const std::string> candidates,
                                 size_t limit = 3);

/// "; did you mean 'a', 'b' or 'c'?", or nothing when there is no suggestion.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace isthmus
