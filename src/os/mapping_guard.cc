#include "os/mapping_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

namespace isthmus {
namespace {

// Constant-initialised and never freed: the handler may run before main() and after it.
constinit std::atomic<MappingGuard::Slot*> slots{nullptr};
constinit std::mutex slots_mutex;
constinit struct sigaction previous {};
uintptr_t page_mask = 0;  // set before the handler is installed

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "the handler may use nothing that takes a lock");

MappingGuard::Slot* slot_of(uintptr_t address) {
  for (auto* slot = slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    const uintptr_t begin = slot->begin.load(std::memory_order_acquire);
    if (begin != 0 && begin <= address && address < slot->end.load(std::memory_order_relaxed)) return slot;
  }
  return nullptr;
}

/// Zero pages from the page of `address` to the end: a truncated file has lost all of them.
bool put_zero_pages(MappingGuard::Slot& slot, uintptr_t address) {
  const uintptr_t first = address & ~page_mask;
  const uintptr_t last = (slot.end.load(std::memory_order_relaxed) + page_mask) & ~page_mask;
  slot.damaged.store(true, std::memory_order_release);
  // The bare system call: sanitizers put code of their own around mmap() that no signal handler may run.
  const long at =
      ::syscall(SYS_mmap, first, last - first, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
  return static_cast<uintptr_t>(at) == first;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  // The default ends the process. The signal stays blocked until this handler returns, and then it strikes.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  ::raise(signal);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int kept_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  auto* slot = info->si_code == BUS_ADRERR ? slot_of(address) : nullptr;
  if (slot == nullptr || !put_zero_pages(*slot, address)) pass_on(signal, info, context);
  errno = kept_errno;
}

void install_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_mask = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1;
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, nullptr, &previous);  // known before the handler can need it
    ::sigaction(SIGBUS, &action, nullptr);
  });
}

MappingGuard::Slot* take_slot(uintptr_t begin, uintptr_t end) {
  const std::lock_guard<std::mutex> lock(slots_mutex);
  auto* slot = slots.load(std::memory_order_relaxed);
  while (slot != nullptr && slot->begin.load(std::memory_order_relaxed) != 0) slot = slot->next;
  const bool fresh = slot == nullptr;
  if (fresh) slot = new MappingGuard::Slot;  // NOLINT: stays in the table for good
  slot->damaged.store(false, std::memory_order_relaxed);
  slot->end.store(end, std::memory_order_relaxed);
  slot->begin.store(begin, std::memory_order_release);
  if (fresh) {
    slot->next = slots.load(std::memory_order_relaxed);
    slots.store(slot, std::memory_order_release);
  }
  return slot;
}

}  // namespace

MappingGuard::MappingGuard(const void* data, size_t bytes) {
  install_once();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  slot_ = take_slot(begin, begin + bytes);
}

MappingGuard::MappingGuard(MappingGuard&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

void MappingGuard::release() {
  if (slot_ != nullptr) slot_->begin.store(0, std::memory_order_release);
  slot_ = nullptr;
}

bool MappingGuard::damaged() const {
  return slot_ != nullptr && slot_->damaged.load(std::memory_order_acquire);
}

}  // namespace isthmus
