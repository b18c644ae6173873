// The pool of compute threads: N - 1 pinned workers and the caller, one parallel region at a time, with a
// spin barrier.
//
// run() executes one function on all threads and returns when all are done; inside, Worker::barrier() joins
// them (36-46 ns for two threads). Between regions workers spin for a short budget and then sleep on a futex,
// so an idle process uses no CPU. When there are more threads than CPUs, waiting yields early instead of
// spinning. One region runs at a time: run() from two threads is serialised by a mutex. A region must not
// call run().
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace isthmus {

class ThreadPool;

/// One thread's view of a parallel region.
class Worker {
 public:
  size_t index() const { return index_; }
  size_t count() const { return count_; }
  /// Waits until every thread of the region has arrived. All must call it the same number of times.
  void barrier();
  /// This thread's share [first, last) of `n` items, contiguous, in multiples of `grain` (the last may be
  /// short).
  std::pair<size_t, size_t> range(size_t n, size_t grain = 1) const;

 private:
  friend class ThreadPool;
  Worker(ThreadPool& pool, size_t index, size_t count) : pool_(pool), index_(index), count_(count) {}
  ThreadPool& pool_;
  size_t index_;
  size_t count_;
};

class ThreadPool {
 public:
  /// `threads` >= 1 counts the caller. `pin` binds worker i to the i-th allowed CPU (the caller is left
  /// alone); it is ignored when there are more threads than CPUs.
  explicit ThreadPool(size_t threads, bool pin = true);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t size() const;
  /// Runs `body`, a callable on a Worker&, on every thread; returns when all have returned. It must not
  /// throw. Takes no memory.
  template <class Body>
  void run(const Body& body) {
    run_region(
        {&body, [](const void* callable, Worker& worker) { (*static_cast<const Body*>(callable))(worker); }});
  }

 private:
  friend class Worker;
  /// A callable that outlives the region.
  struct Region {
    const void* callable = nullptr;
    void (*call)(const void*, Worker&) = nullptr;
    void operator()(Worker& worker) const { call(callable, worker); }
  };
  void run_region(Region region);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus
