// The threaded driver of the matrix products. Vocabulary: a *job* is one product, or the two of a gated layer
// (its *lanes*) that share rows; a *chunk* is 256 columns of a panel; a *tile* is up to 8 tokens. Few tokens
// run on the packed weights, several panels at once (*streams*) because one stream does not fill the memory
// bus of every machine; many tokens unpack a group of panels into scratch and run every tile over it.
#include "ops/linear.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "ops/aligned_bytes.h"
#include "ops/linear_bf16.h"
#include "ops/linear_streams.h"
#include "ops/linear_tiles.h"

namespace isthmus {
namespace {

constexpr size_t kChunkCols = 256;
constexpr size_t kMaxStreams = 8;
/// From this many tokens on unpacking pays (measured on three models: at 8 it loses 4 to 12 %, from 12 on it
/// wins).
constexpr size_t kUnpackTokens = 9;
constexpr size_t kAccFloats = kMaxTokens * kPanelRows;

struct Job {
  const PackedMatrix* w[2];
  size_t lanes;
  float* y;
  size_t ldy;
  const float* bias;
  bool accumulate;
  Gate gate;

  size_t panels() const { return panel_count(w[0]->rows); }
};

/// What the inner loops need of one matrix, worked out once.
struct Lane {
  const PackedMatrix* w;
  bool quantised;
  size_t panel_bytes;
  size_t units;
  size_t unit_bytes;
  size_t chunk_units;
  const DotKernel* dot = nullptr;
  const DotKernel* dot_unpacked = nullptr;
  WideKernel dot_wide = nullptr;
  TileKernel dot_tiles = nullptr;
  UnpackKernel unpack = nullptr;
  const FloatDotKernel* dot_float = nullptr;

  Lane(const PackedMatrix& matrix, const Activations& x) : w(&matrix) {
    assert(matrix.cols == x.cols());
    const auto format = static_cast<size_t>(matrix.format);
    const LinearKernels& kernels = x.kernels();
    quantised = is_quantised(matrix.format);
    panel_bytes = isthmus::panel_bytes(matrix.format, matrix.cols);
    units = panel_units(matrix.format, matrix.cols);
    if (!quantised) {
      dot_float = kernels.dot_float[format - kQuantFormats];
      unit_bytes = kPanelRows * (matrix.format == PackFormat::kF32 ? 4 : 2);  // one column
      chunk_units = kChunkCols;
      return;
    }
    assert(x.compute() != Compute::kF32);
    const auto compute = static_cast<size_t>(x.compute());
    const PanelLayout layout = panel_layout(matrix.format);
    unit_bytes = layout.unit_bytes();
    chunk_units = kChunkCols / layout.unit_cols();
    dot = kernels.dot[format][compute];
    dot_unpacked = kernels.dot_unpacked[format][compute];
    dot_wide = kernels.dot_wide[format][compute];
    if (use_int_tiles(x.compute())) dot_tiles = kernels.dot_tiles[format][compute];
    unpack = kernels.unpack[format];
  }

  const std::byte* panel(size_t index) const { return w->data + index * panel_bytes; }
  size_t unpacked_blocks() const { return units * static_cast<size_t>(panel_layout(w->format).unit_blocks); }
  size_t unpacked_bytes() const {
    return unpacked_blocks() * unpacked_layout(panel_layout(w->format)).unit_bytes();
  }
};

/// acc[tile tokens][16] += 256 columns of a panel.
void dot_chunk(const Lane& lane, const std::byte* panel, size_t chunk, const Activations& x, size_t tile,
               float* acc, size_t prefetch) {
  const size_t tokens = x.tile_tokens(tile);
  const size_t unit = chunk * lane.chunk_units;
  const std::byte* at = panel + unit * lane.unit_bytes;
  for (size_t t = 0; t < tokens;) {
    const size_t n = kernel_tokens(tokens - t);
    if (lane.quantised) {
      const size_t count = std::min(lane.chunk_units, lane.units - unit);
      lane.dot[token_index(n)](at, count, x.record(tile, t, chunk * kChunkCols / kBlockCols),
                               x.tile_stride(tile), acc + t * kPanelRows, prefetch);
    } else {
      const size_t count = std::min(kChunkCols, x.cols() - chunk * kChunkCols);
      lane.dot_float[token_index(n)](at, count, x.row(tile * kMaxTokens + t) + chunk * kChunkCols, x.ldx(),
                                     acc + t * kPanelRows, prefetch);
    }
    prefetch = 0;
    t += n;
  }
}

/// The rows of a last panel that is not whole.
void store_rows(const Job& job, size_t token, size_t first_row, size_t rows, const float* values) {
  float* y = job.y + token * job.ldy + first_row;
  for (size_t r = 0; r < rows; ++r) {
    const float value = job.bias == nullptr ? values[r] : values[r] + job.bias[first_row + r];
    y[r] = job.accumulate ? y[r] + value : value;
  }
}

/// Writes the results of one panel and tile; `second` is the second lane's, acc[tokens][16] both.
void finish(const Job& job, const Activations& x, size_t panel, size_t tile, float* acc,
            const float* second) {
  const size_t tokens = x.tile_tokens(tile);
  if (job.lanes == 2)
    float_kernels_for(x.kernels().isa).gate_mul(job.gate, acc, second, acc, tokens * kPanelRows);
  const size_t first_row = panel * kPanelRows;
  const size_t rows = std::min(kPanelRows, job.w[0]->rows - first_row);
  const size_t first_token = tile * kMaxTokens;
  if (rows == kPanelRows) {
    const float* bias = job.bias == nullptr ? nullptr : job.bias + first_row;
    float* y = job.y + first_token * job.ldy + first_row;
    return x.kernels().store(acc, tokens, y, job.ldy, bias, job.accumulate);
  }
  for (size_t t = 0; t < tokens; ++t) {
    store_rows(job, first_token + t, first_row, rows, acc + t * kPanelRows);
  }
}

/// One step of run_packed(): the panels that are read at once, for one tile.
void run_streams(const Job& job, const Lane* lanes, const size_t* panels, size_t count, const Activations& x,
                 size_t tile, size_t prefetch) {
  alignas(64) float acc[kMaxStreams * kAccFloats];
  std::memset(acc, 0, count * job.lanes * kAccFloats * sizeof(float));
  const size_t chunks = (x.cols() + kChunkCols - 1) / kChunkCols;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    for (size_t s = 0; s < count; ++s) {
      for (size_t lane = 0; lane < job.lanes; ++lane) {
        float* at = acc + (s * job.lanes + lane) * kAccFloats;
        dot_chunk(lanes[lane], lanes[lane].panel(panels[s]), chunk, x, tile, at, prefetch);
      }
    }
  }
  for (size_t s = 0; s < count; ++s) {
    float* at = acc + s * job.lanes * kAccFloats;
    finish(job, x, panels[s], tile, at, at + kAccFloats);
  }
}

/// Panels [first, last) on the packed weights. The range is cut into as many runs as there are streams, so
/// that what is read at once lies far apart and each stream goes on where it was.
void run_packed(const Job& job, const Lane* lanes, size_t first, size_t last, const Activations& x,
                const StreamPlan& plan) {
  const size_t streams = std::clamp<size_t>(plan.panels / job.lanes, 1, kMaxStreams / job.lanes);
  const size_t run = (last - first + streams - 1) / streams;
  for (size_t i = 0; i < run; ++i) {
    size_t panels[kMaxStreams];
    size_t count = 0;
    for (size_t at = first + i; at < last; at += run) panels[count++] = at;
    for (size_t tile = 0; tile < x.tiles(); ++tile) {
      run_streams(job, lanes, panels, count, x, tile, tile == 0 ? plan.prefetch_bytes : 0);
    }
  }
}

/// This thread's scratch; null when there is no memory for it.
std::byte* thread_scratch() {
  thread_local const AlignedBytes scratch = aligned_bytes(kLinearScratchBytes, kVectorBytes);
  return scratch.get();
}

/// acc[tokens][16] = one unpacked panel times one tile.
void dot_unpacked_tile(const Lane& lane, const std::byte* weights, const Activations& x, size_t tile,
                       float* acc) {
  const size_t tokens = x.tile_tokens(tile);
  std::memset(acc, 0, tokens * kPanelRows * sizeof(float));
  for (size_t t = 0; t < tokens;) {
    const size_t n = kernel_tokens(tokens - t);
    lane.dot_unpacked[token_index(n)](weights, lane.unpacked_blocks(), x.record(tile, t, 0),
                                      x.tile_stride(tile), acc + t * kPanelRows, 0);
    t += n;
  }
}

/// Panels unpacked to scratch, lane by lane: slot p of a lane is panel first_panel + p.
struct Group {
  size_t first_panel;
  size_t count;
  const std::byte* lanes[2];
  size_t slot_bytes[2];
};

void unpack_group(const Job& job, const Lane* lanes, const Group& group) {
  for (size_t l = 0; l < job.lanes; ++l) {
    auto* to = const_cast<std::byte*>(group.lanes[l]);  // this thread's own scratch
    for (size_t p = 0; p < group.count; ++p, to += group.slot_bytes[l]) {
      lanes[l].unpack(lanes[l].panel(group.first_panel + p), lanes[l].units, to);
    }
  }
}

/// One tile of tokens over all panels of a group: by several panels at once where the set can, then one by
/// one.
void run_group_tile(const Job& job, const Lane* lanes, const Group& group, const Activations& x,
                    size_t tile) {
  alignas(64) float wide[2][kMaxStreams * kAccFloats];
  alignas(64) float acc[2 * kAccFloats];
  const size_t tokens = x.tile_tokens(tile);
  const size_t panels = x.kernels().wide_panels;
  size_t p = 0;
  for (; panels > 0 && tokens == kMaxTokens && p + panels <= group.count; p += panels) {
    for (size_t l = 0; l < job.lanes; ++l) {
      std::memset(wide[l], 0, panels * kAccFloats * sizeof(float));
      lanes[l].dot_wide(group.lanes[l] + p * group.slot_bytes[l], group.slot_bytes[l],
                        lanes[l].unpacked_blocks(), x.record(tile, 0, 0), x.tile_stride(tile), wide[l]);
    }
    for (size_t i = 0; i < panels; ++i) {
      finish(job, x, group.first_panel + p + i, tile, wide[0] + i * kAccFloats, wide[1] + i * kAccFloats);
    }
  }
  for (; p < group.count; ++p) {
    for (size_t l = 0; l < job.lanes; ++l) {
      dot_unpacked_tile(lanes[l], group.lanes[l] + p * group.slot_bytes[l], x, tile, acc + l * kAccFloats);
    }
    finish(job, x, group.first_panel + p, tile, acc, acc + kAccFloats);
  }
}

/// A strip of tokens over all panels of a group, by tiles.
void run_group_strip(const Job& job, const Lane* lanes, const Group& group, const Activations& x,
                     size_t strip) {
  static_assert(kStripTokens == 2 * kMaxTokens);
  constexpr size_t kSums = kStripTokens * kPanelRows;
  alignas(64) float acc[2][kMaxStreams * kSums];
  const size_t tile = 2 * strip;
  const TileStrips records = {x.record(tile, 0, 0), x.tile_stride(tile), 1, x.strip_bytes()};
  for (size_t l = 0; l < job.lanes; ++l) {
    std::memset(acc[l], 0, group.count * kSums * sizeof(float));
    lanes[l].dot_tiles({group.lanes[l], group.slot_bytes[l], group.count, lanes[l].unpacked_blocks()},
                       records, acc[l]);
  }
  for (size_t p = 0; p < group.count; ++p) {
    for (size_t half = 0; half < 2; ++half) {
      const size_t at = p * kSums + half * kAccFloats;
      finish(job, x, group.first_panel + p, tile + half, acc[0] + at, acc[1] + at);
    }
  }
}

/// Panels [first, last) by groups that are unpacked to `scratch` and then run over all tiles.
void run_unpacked(const Job& job, const Lane* lanes, size_t first, size_t last, const Activations& x,
                  size_t most, std::byte* scratch) {
  Group group{};
  group.slot_bytes[0] = lanes[0].unpacked_bytes();
  group.slot_bytes[1] = job.lanes == 2 ? lanes[1].unpacked_bytes() : 0;
  group.lanes[0] = scratch;
  group.lanes[1] = scratch + most * group.slot_bytes[0];
  for (group.first_panel = first; group.first_panel < last; group.first_panel += group.count) {
    group.count = std::min(most, last - group.first_panel);
    unpack_group(job, lanes, group);
    const bool tiles = lanes[0].dot_tiles != nullptr && lanes[job.lanes - 1].dot_tiles != nullptr;
    const size_t strips = tiles ? x.whole_strips() : 0;
    for (size_t strip = 0; strip < strips; ++strip) run_group_strip(job, lanes, group, x, strip);
    for (size_t tile = strips * x.strip_tokens() / kMaxTokens; tile < x.tiles(); ++tile)
      run_group_tile(job, lanes, group, x, tile);
  }
}

/// Panels [first, last) in class `fast`.
void run_bf16(const Job& job, size_t first, size_t last, const Activations& x) {
  Bf16Lane lanes[2];
  for (size_t l = 0; l < job.lanes; ++l) {
    const PackedMatrix& w = *job.w[l];
    lanes[l] = {w.data, panel_bytes(w.format, w.cols), x.kernels().expand[static_cast<size_t>(w.format)]};
  }
  alignas(64) std::byte least[bf16_scratch_bytes(2)];  // when there is no memory: slower, the same bits
  std::byte* scratch = thread_scratch();
  Bf16Run run({lanes, job.lanes}, x, scratch == nullptr ? least : scratch,
              scratch == nullptr ? sizeof(least) : kLinearScratchBytes);
  run.run(first, last, [&](size_t panel, size_t tile, float* acc, const float* second) {
    finish(job, x, panel, tile, acc, second);
  });
}

void run_job(const Job& job, size_t first, size_t last, const Activations& x, const StreamPlan& plan) {
  if (first >= last) return;
  if (x.compute() == Compute::kBf16) return run_bf16(job, first, last, x);
  const Lane lanes[2] = {Lane(*job.w[0], x), Lane(*job.w[job.lanes - 1], x)};
  const bool quantised = lanes[0].quantised && lanes[1].quantised;
  if (quantised && x.tokens() >= kUnpackTokens) {
    const size_t slot = lanes[0].unpacked_bytes() + (job.lanes == 2 ? lanes[1].unpacked_bytes() : 0);
    const size_t group = kLinearScratchBytes / slot;
    std::byte* scratch = group > 0 ? thread_scratch() : nullptr;
    if (scratch != nullptr)
      return run_unpacked(job, lanes, first, last, x, std::min<size_t>(group, kMaxStreams), scratch);
  }
  run_packed(job, lanes, first, last, x, plan);
}

/// Cost of one panel: its bytes where memory is the limit, its multiplications where there are many tokens.
size_t panel_cost(const Job& job, const Activations& x) {
  size_t cost = 0;
  for (size_t lane = 0; lane < job.lanes; ++lane) {
    const PackedMatrix& w = *job.w[lane];
    const bool plain = !is_quantised(w.format);
    if (x.compute() == Compute::kBf16) {
      cost += w.cols;
      continue;
    }
    cost += x.tokens() < kUnpackTokens ? panel_bytes(w.format, w.cols) : w.cols * (plain ? 4 : 1);
  }
  return cost;
}

/// The share of this thread: positions [begin, end) on the line of all panels' costs, cut at panel borders.
void run_share(std::span<const Job> jobs, const Activations& x, const Worker& worker,
               const StreamPlan& plan) {
  if (x.tokens() == 0 || x.cols() == 0) return;
  size_t total = 0;
  for (const Job& job : jobs) total += job.panels() * panel_cost(job, x);
  const auto cut = [&](size_t index) { return total / worker.count() * index; };
  const size_t begin = cut(worker.index());
  const size_t end = worker.index() + 1 == worker.count() ? total : cut(worker.index() + 1);
  size_t start = 0;
  for (const Job& job : jobs) {
    const size_t cost = panel_cost(job, x);
    const auto panel_at = [&](size_t position) {
      return position <= start ? 0 : std::min((position - start + cost / 2) / cost, job.panels());
    };
    run_job(job, panel_at(begin), panel_at(end), x, plan);
    start += job.panels() * cost;
  }
}

}  // namespace

void linear(std::span<const LinearTask> tasks, const Activations& x, const Worker& worker) {
  constexpr size_t kBatch = 8;  // jobs on the stack; more tasks than this only cost balance between batches
  const StreamPlan plan = stream_plan();
  for (size_t done = 0; done < tasks.size(); done += kBatch) {
    Job jobs[kBatch];
    const size_t count = std::min(kBatch, tasks.size() - done);
    for (size_t i = 0; i < count; ++i) {
      const LinearTask& task = tasks[done + i];
      jobs[i] = {{task.w, nullptr}, 1, task.y, task.ldy, task.bias, task.accumulate, Gate::kSilu};
    }
    run_share({jobs, count}, x, worker, plan);
  }
}

void linear_gated(const PackedMatrix& gate, const PackedMatrix& up, Gate kind, const Activations& x, float* y,
                  size_t ldy, const Worker& worker) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  const Job job = {{&gate, &up}, 2, y, ldy, nullptr, false, kind};
  run_share({&job, 1}, x, worker, stream_plan());
}

}  // namespace isthmus
