#include "apps/isthmus/interrupt.h"

#include <csignal>

namespace isthmus::cli {
namespace {

// Made before the handlers are installed, so a handler never runs its first-use initialisation.
CancelSource* g_interrupt = nullptr;

void on_signal(int signal) {
  if (g_interrupt->token().cancelled()) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  g_interrupt->cancel();
}

}  // namespace

CancelSource& interrupt() {
  static CancelSource source;
  return source;
}

void install_interrupt_handlers() {
  g_interrupt = &interrupt();
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

}  // namespace isthmus::cli
