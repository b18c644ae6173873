// Whether a standard stream of this process is a terminal, and how wide it is. Thread-safe; no errors.
#pragma once

#include <cstddef>

namespace isthmus {

/// `descriptor`: 0 input, 1 output, 2 errors.
bool is_terminal(int descriptor);

/// Columns of the terminal behind `descriptor`; 80 when that is unknown.
size_t terminal_width(int descriptor);

}  // namespace isthmus
