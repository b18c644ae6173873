#include "threads/pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "os/cpu.h"

namespace isthmus {
namespace {

// A worker spins this many pauses (some 100 us) for the next region before it sleeps: the gap between two
// decode steps is shorter, a futex wake costs 25 us in a virtual machine.
constexpr int kIdleSpins = 4000;
// Spins at a barrier before the first yield: another thread may have lost its CPU to another process.
constexpr int kBarrierSpins = 20000;
constexpr int kCrowdedSpins = 50;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::Impl {
  size_t count = 1;
  bool crowded = false;  // more threads than CPUs
  std::mutex run_mutex;
  Region body;
  std::vector<std::thread> threads;

  alignas(64) std::atomic<uint32_t> region{0};  // number of the region to run
  alignas(64) std::atomic<size_t> running{0};   // workers still inside the region
  alignas(64) std::atomic<size_t> arrived{0};   // at the present barrier
  alignas(64) std::atomic<uint32_t> phase{0};   // number of barriers passed
  alignas(64) std::atomic<bool> stop{false};

  template <class Done>
  void spin_until(const Done& done) const {
    const int limit = crowded ? kCrowdedSpins : kBarrierSpins;
    for (int spins = 0; !done(); ++spins) {
      if (spins < limit) {
        pause_cpu();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void barrier() {
    if (count == 1) return;
    const uint32_t now = phase.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
      arrived.store(0, std::memory_order_relaxed);
      phase.store(now + 1, std::memory_order_release);
      return;
    }
    spin_until([&] { return phase.load(std::memory_order_acquire) != now; });
  }

  /// Waits for a region other than `seen`; spins first, then sleeps.
  uint32_t next_region(uint32_t seen) {
    const int limit = crowded ? kCrowdedSpins : kIdleSpins;
    for (int spins = 0; spins < limit; ++spins) {
      const uint32_t now = region.load(std::memory_order_acquire);
      if (now != seen) return now;
      pause_cpu();
    }
    region.wait(seen, std::memory_order_acquire);
    return region.load(std::memory_order_acquire);
  }
};

ThreadPool::ThreadPool(size_t threads, bool pin) : impl_(std::make_unique<Impl>()) {
  const auto cpus = os::allowed_cpus();
  impl_->count = std::max<size_t>(1, threads);
  impl_->crowded = impl_->count > os::usable_cpus();
  const bool bind = pin && !impl_->crowded;
  for (size_t i = 1; i < impl_->count; ++i) {
    const int cpu = cpus[i % cpus.size()];
    impl_->threads.emplace_back([this, i, bind, cpu] {
      if (bind) os::pin_this_thread(cpu);
      Worker worker(*this, i, impl_->count);
      uint32_t seen = 0;
      for (;;) {
        seen = impl_->next_region(seen);
        if (impl_->stop.load(std::memory_order_acquire)) return;
        impl_->body(worker);
        impl_->running.fetch_sub(1, std::memory_order_release);
      }
    });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->region.fetch_add(1, std::memory_order_release);
  impl_->region.notify_all();
  for (auto& thread : impl_->threads) thread.join();
}

size_t ThreadPool::size() const { return impl_->count; }

void ThreadPool::run_region(Region body) {
  const std::lock_guard<std::mutex> lock(impl_->run_mutex);
  Worker self(*this, 0, impl_->count);
  if (impl_->count > 1) {
    impl_->body = body;
    impl_->running.store(impl_->count - 1, std::memory_order_relaxed);
    impl_->region.fetch_add(1, std::memory_order_release);
    impl_->region.notify_all();
  }
  body(self);
  impl_->spin_until([&] { return impl_->running.load(std::memory_order_acquire) == 0; });
}

void Worker::barrier() { pool_.impl_->barrier(); }

std::pair<size_t, size_t> Worker::range(size_t n, size_t grain) const {
  const size_t units = (n + grain - 1) / grain;
  const size_t first = units * index_ / count_ * grain;
  const size_t last = units * (index_ + 1) / count_ * grain;
  return {std::min(first, n), std::min(last, n)};
}

}  // namespace isthmus
