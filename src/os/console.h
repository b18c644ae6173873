// Reading standard input in a way that a signal can end, and standard streams that are always open.
//
// read_input() goes past the buffers of <cstdio> and <iostream>: a program reads its standard input through
// it or through them, not both. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "base/status.h"

namespace isthmus::os {

enum class InputState {
  kBytes,    // something was read
  kEnd,      // the end of the input
  kNothing,  // the time has passed, or a signal came: look at what it said and ask again
};

struct InputRead {
  InputState state = InputState::kNothing;
  size_t bytes = 0;  // of kBytes
};

/// Waits at most `wait` for standard input and reads what is there, at most `buffer.size()` bytes. kIo.
Result<InputRead> read_input(std::span<char> buffer, std::chrono::milliseconds wait);

/// Opens whichever of the three standard streams the caller closed, so that no file can take its number:
/// reading or writing it fails, but for standard error, whose text goes nowhere. Call first in main.
void open_missing_streams();

}  // namespace isthmus::os
