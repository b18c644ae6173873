#include "threads/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <thread>
#include <vector>

namespace isthmus {
namespace {

TEST(ThreadPool, EveryThreadRunsEveryRegionOnce) {
  for (const size_t n : {1, 2, 3, 7}) {
    ThreadPool pool(n);
    std::vector<int> hits(n, 0);
    for (int region = 0; region < 200; ++region) {
      pool.run([&](Worker& w) {
        EXPECT_EQ(w.count(), n);
        ++hits[w.index()];
      });
    }
    EXPECT_EQ(hits, std::vector<int>(n, 200));
  }
}

TEST(ThreadPool, BarrierMakesWritesVisible) {
  for (const size_t n : {1, 2, 3, 7}) {
    ThreadPool pool(n);
    std::vector<size_t> value(n, 0);
    std::atomic<int> wrong{0};
    pool.run([&](Worker& w) {
      for (size_t step = 1; step <= 300; ++step) {
        value[w.index()] = step * (w.index() + 1);
        w.barrier();
        const size_t sum = std::accumulate(value.begin(), value.end(), size_t{0});
        if (sum != step * n * (n + 1) / 2) ++wrong;
        w.barrier();
      }
    });
    EXPECT_EQ(wrong.load(), 0) << n << " threads";
  }
}

TEST(ThreadPool, RangesCoverAllItemsOnce) {
  ThreadPool pool(3);
  for (const size_t items : {0, 1, 2, 3, 10, 48, 100}) {
    for (const size_t grain : {1, 16}) {
      std::vector<std::atomic<int>> seen(items);
      pool.run([&](Worker& w) {
        const auto [first, last] = w.range(items, grain);
        if (first < items) {
          EXPECT_EQ(first % grain, 0U);
        }
        for (size_t i = first; i < last; ++i) ++seen[i];
      });
      for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
    }
  }
}

TEST(ThreadPool, RegionsFromTwoThreadsDoNotMix) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  const auto client = [&] {
    for (int i = 0; i < 100; ++i) {
      pool.run([&](Worker& w) {
        if (w.index() == 0) {
          const int now = ++inside;
          most = std::max(most.load(), now);
        }
        w.barrier();
        if (w.index() == 0) --inside;
      });
    }
  };
  std::thread other(client);
  client();
  other.join();
  EXPECT_EQ(most.load(), 1);
}

TEST(ThreadPool, AnIdlePoolUsesNoCpu) {
  ThreadPool pool(4);
  pool.run([](Worker&) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used, 0.05);
}

}  // namespace
}  // namespace isthmus
