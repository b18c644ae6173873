// Ctrl-C and SIGTERM. The first one sets a flag that every long call watches; the second, while the flag is
// still set, ends the process at once.
#pragma once

#include "base/cancel.h"

namespace isthmus::cli {

/// Installs the handlers. Call once, early in main, from the only thread.
void install_interrupt_handlers();

/// The flag. A conversation resets it after an answer was stopped, so that the next Ctrl-C stops the next
/// answer.
CancelSource& interrupt();

/// Whether the flag is set or SIGTERM came.
bool wants_to_stop();

/// Whether SIGTERM came: it ends the program, also where Ctrl-C ends an answer alone. Never reset.
bool terminated();

/// Whether the program was stopped (Ctrl-Z) and goes on since the last call; the terminal may be in another
/// mode.
bool resumed();

}  // namespace isthmus::cli
