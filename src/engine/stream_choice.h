// Which way of walking the weights (ops/linear_streams.h) this machine likes best: measured when a model is
// first loaded here, then remembered in the cache folder by processor, instruction set and thread count.
//
// A plan changes speed only, never a result, so a record is worth nothing to an attacker; its file is still
// read with limits, and a line that is not understood is as if it were not there. A disk that cannot be
// written costs a measurement at each start. Thread-safe; two processes may write at once, the last one wins.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/transformer.h"
#include "ops/linear_streams.h"
#include "os/file.h"
#include "threads/pool.h"

namespace isthmus {

struct StreamRecord {
  std::string cpu;  // as os::cpu_info() names it
  std::string isa;
  size_t threads = 0;
  StreamPlan plan;
};

/// The records of a file; lines of another version, damaged or out of range are left out, and so is what
/// follows the first kMostStreamRecords.
inline constexpr size_t kMostStreamRecords = 64;
std::vector<StreamRecord> parse_stream_records(std::string_view text);
/// Those of the file at `path`; none when it is no regular file or cannot be read.
std::vector<StreamRecord> read_stream_records(FileSystem& files, const std::string& path);
std::string format_stream_records(std::span<const StreamRecord> records);

/// Where the plan in use comes from.
enum class StreamSource {
  kDefault,     // too few weights to measure, or no time for it
  kMeasured,    // just now
  kRemembered,  // from the file
};

/// Sets the process's plan for products over the model's weights, loaded and run by `pool`. `path` names the
/// file of records; empty: nothing is remembered.
StreamSource choose_streams(const Transformer& model, ThreadPool& pool, FileSystem& files,
                            const std::string& path);

}  // namespace isthmus
