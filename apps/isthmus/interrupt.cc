#include "apps/isthmus/interrupt.h"

#include <csignal>

namespace isthmus::cli {
namespace {

// Made before the handlers are installed, so a handler never runs its first-use initialisation.
CancelSource* g_interrupt = nullptr;
volatile std::sig_atomic_t g_terminated = 0;
volatile std::sig_atomic_t g_resumed = 0;

void on_signal(int signal) {
  if (signal == SIGTERM) g_terminated = 1;
  if (g_interrupt->token().cancelled()) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  g_interrupt->cancel();
}

void on_continue(int /*signal*/) { g_resumed = 1; }

}  // namespace

CancelSource& interrupt() {
  static CancelSource source;
  return source;
}

void install_interrupt_handlers() {
  g_interrupt = &interrupt();
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGCONT, on_continue);
}

bool wants_to_stop() { return terminated() || interrupt().token().cancelled(); }

bool terminated() { return g_terminated != 0; }

bool resumed() {
  const bool was = g_resumed != 0;
  g_resumed = 0;
  return was;
}

}  // namespace isthmus::cli
