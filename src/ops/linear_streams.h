// How a thread walks the weights when it is bound by memory: the number of panels it reads at once and how
// far ahead it prefetches.
//
// One ascending stream is best on some machines, four far apart with prefetch on others (2x between them on
// both), so the plan is measured. It changes no result. The plan is process-wide; setting it while products
// run is safe and takes effect at the next product.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "ops/linear.h"
#include "threads/pool.h"

namespace isthmus {

struct StreamPlan {
  size_t panels = 4;             // read at once: 1, 2 or 4
  size_t prefetch_bytes = 1024;  // ahead of each stream; 0 = none
  double gb_per_s = 0;           // measured over all threads; 0 = not measured
};

/// Times the candidates on products over `weights`, as many as it takes to outgrow the caches; some tens of
/// milliseconds, and the bytes of one row of activations and results. The default plan stays unless another
/// is clearly faster. kFailedPrecondition when there are too few weights; kDeadlineExceeded when one
/// candidate takes so long (an emulator, a sanitizer) that the comparison would be felt; kResourceExhausted
/// without memory.
Result<StreamPlan> measure_streams(std::span<const PackedMatrix* const> weights, ThreadPool& pool);
/// The same on a buffer that is taken for the purpose and given back.
Result<StreamPlan> measure_streams(ThreadPool& pool);
/// Whether `plan` is one that measure_streams() could choose, its speed aside.
bool is_stream_candidate(const StreamPlan& plan);

/// The plan in use: the last one set, or the default.
StreamPlan stream_plan();
void set_stream_plan(const StreamPlan& plan);

}  // namespace isthmus
