// What a standard stream is connected to. Thread-safe; values are read fresh.
#pragma once

#include <cstddef>

namespace isthmus::os {

enum class Stream { kInput, kOutput, kError };

/// Whether a person is at the other end.
bool is_terminal(Stream stream);

/// Columns of the terminal behind `stream`; `fallback` when it is none or does not say.
size_t terminal_columns(Stream stream, size_t fallback = 80);

}  // namespace isthmus::os
