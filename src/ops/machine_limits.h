// What this machine can do at most, which speeds are held against: reading memory (generation) and
// multiplying from registers (prompts). Measured when asked, some 0.1 s a call; wants a quiet machine. Safe
// on any thread, but two measurements at once disturb each other.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "kernels/panel_layout.h"
#include "os/mmap.h"

namespace isthmus {

/// Owns a buffer larger than the caches.
class BandwidthProbe {
 public:
  /// kResourceExhausted when there is no memory for the buffer of 256 MiB.
  static Result<BandwidthProbe> create();

  /// GB/s of reading the buffer with `threads` threads and `streams` ascending streams (1 to 8) each: the
  /// median of five.
  double read(size_t threads, size_t streams) const;
  /// The most that `threads` threads reach: plain reads with 1 to 8 streams, and the product of one token
  /// with each way of walking weights (measure_streams(), whose errors it passes on).
  Result<double> limit(size_t threads) const;

 private:
  explicit BandwidthProbe(HugeArena buffer) : buffer_(std::move(buffer)) {}
  HugeArena buffer_;
};

/// 1e9 multiply-adds per second of one thread with the active set's instruction for this precision of the
/// activations, operands in registers and the first-level cache: the most that a kernel can reach. The best
/// of five tries.
double peak_gmacs(Compute compute);

}  // namespace isthmus
