// How fast this machine's memory can be read, the limit that generation is held against. A probe owns a
// buffer larger than the caches; measuring takes some 0.1 s a call and wants a quiet machine. One thread at a
// time.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "os/mmap.h"

namespace isthmus::cli {

class BandwidthProbe {
 public:
  /// kResourceExhausted when there is no memory for the buffer of 256 MiB.
  static Result<BandwidthProbe> create();

  /// GB/s of reading the buffer with `threads` threads and `streams` ascending streams each: the median of
  /// five.
  double read(size_t threads, size_t streams) const;
  /// The most that `threads` threads reach: plain reads with 1 to 8 streams, and the product of one token
  /// with each way of walking weights (measure_streams()).
  Result<double> limit(size_t threads) const;

 private:
  explicit BandwidthProbe(HugeArena buffer) : buffer_(std::move(buffer)) {}
  HugeArena buffer_;
};

}  // namespace isthmus::cli
