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
/// Blocks of 32 columns that are unpacked at once, whole units of every format.
constexpr size_t kSliceBlocks = 64;
/// Panels of such a slice in the scratch, for two lanes of the largest format.
constexpr size_t kGroupPanels = 8;
static_assert(2 * kGroupPanels * kSliceBlocks * (kPanelRows * kBlockCols + 4 * kPanelRows * sizeof(float)) ==
              kLinearWeightBytes);
/// Tiles, of one lane, whose sums wait in the scratch for the next slice.
constexpr size_t kSumTiles = kLinearSumBytes / (kGroupPanels * kAccFloats * sizeof(float));

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
  size_t unit_blocks = 0;
  size_t unpacked_block_bytes = 0;
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
    unit_blocks = static_cast<size_t>(layout.unit_blocks);
    unpacked_block_bytes = unpacked_layout(layout).unit_bytes();
  }

  const std::byte* panel(size_t index) const { return w->data + index * panel_bytes; }
  size_t blocks() const { return units * unit_blocks; }
};

/// A tile's records, found once for all chunks of all panels: working out where they lie takes divisions.
struct Tile {
  size_t index;
  size_t tokens;
  const std::byte* records;
  size_t stride;
  size_t record_bytes;

  Tile(const Activations& x, size_t tile)
      : index(tile),
        tokens(x.tile_tokens(tile)),
        records(x.record(tile, 0, 0)),
        stride(x.tile_stride(tile)),
        record_bytes(x.record_bytes()) {}
};

/// acc[tile tokens][16] += 256 columns of a panel.
void dot_chunk(const Lane& lane, const std::byte* panel, size_t chunk, const Activations& x, const Tile& tile,
               float* acc, size_t prefetch) {
  const size_t unit = chunk * lane.chunk_units;
  const std::byte* at = panel + unit * lane.unit_bytes;
  for (size_t t = 0; t < tile.tokens;) {
    const size_t n = kernel_tokens(tile.tokens - t);
    if (lane.quantised) {
      const size_t count = std::min(lane.chunk_units, lane.units - unit);
      const std::byte* record =
          tile.records + chunk * (kChunkCols / kBlockCols) * tile.stride + t * tile.record_bytes;
      lane.dot[token_index(n)](at, count, record, tile.stride, acc + t * kPanelRows, prefetch);
    } else {
      const size_t count = std::min(kChunkCols, x.cols() - chunk * kChunkCols);
      lane.dot_float[token_index(n)](at, count, x.row(tile.index * kMaxTokens + t) + chunk * kChunkCols,
                                     x.ldx(), acc + t * kPanelRows, prefetch);
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
                 const Tile& tile, size_t prefetch) {
  alignas(64) float acc[kMaxStreams * kAccFloats];
  for (size_t i = 0; i < count * job.lanes; ++i) {
    std::memset(acc + i * kAccFloats, 0, tile.tokens * kPanelRows * sizeof(float));
  }
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
    finish(job, x, panels[s], tile.index, at, at + kAccFloats);
  }
}

/// Panels [first, last) on the packed weights. The range is cut into as many runs as there are streams, so
/// that what is read at once lies far apart and each stream goes on where it was.
void run_packed(const Job& job, const Lane* lanes, size_t first, size_t last, const Activations& x,
                const StreamPlan& plan) {
  const size_t streams = std::clamp<size_t>(plan.panels / job.lanes, 1, kMaxStreams / job.lanes);
  const size_t run = (last - first + streams - 1) / streams;
  const Tile first_tile(x, 0);
  for (size_t i = 0; i < run; ++i) {
    size_t panels[kMaxStreams];
    size_t count = 0;
    for (size_t at = first + i; at < last; at += run) panels[count++] = at;
    run_streams(job, lanes, panels, count, x, first_tile, plan.prefetch_bytes);
    for (size_t tile = 1; tile < x.tiles(); ++tile) {
      run_streams(job, lanes, panels, count, x, Tile(x, tile), 0);
    }
  }
}

/// This thread's scratch; null when there is no memory for it.
std::byte* thread_scratch() {
  thread_local const AlignedBytes scratch = aligned_bytes(kLinearScratchBytes, kVectorBytes);
  return scratch.get();
}

/// A slice of some panels, unpacked to scratch lane by lane: slot p of a lane is panel first_panel + p.
struct Group {
  size_t first_panel;
  size_t count;
  size_t first_block;
  size_t blocks[2];
  std::byte* lanes[2];
  size_t slot_bytes[2];
};

/// Of a tile, or of the two of a strip: [panels of the group][tiles][kMaxTokens][16], by lane.
struct Sums {
  float* lanes[2];
};

void unpack_group(const Job& job, const Lane* lanes, const Group& group) {
  for (size_t l = 0; l < job.lanes; ++l) {
    const Lane& lane = lanes[l];
    const size_t skip = group.first_block / lane.unit_blocks * lane.unit_bytes;
    for (size_t p = 0; p < group.count; ++p) {
      lane.unpack(lane.panel(group.first_panel + p) + skip, group.blocks[l] / lane.unit_blocks,
                  group.lanes[l] + p * group.slot_bytes[l]);
    }
  }
}

/// acc[tokens][16] += one unpacked panel times one tile.
void dot_unpacked_tile(const Lane& lane, const std::byte* weights, size_t first_block, size_t blocks,
                       const Activations& x, size_t tile, float* acc) {
  const size_t tokens = x.tile_tokens(tile);
  for (size_t t = 0; t < tokens;) {
    const size_t n = kernel_tokens(tokens - t);
    lane.dot_unpacked[token_index(n)](weights, blocks, x.record(tile, t, first_block), x.tile_stride(tile),
                                      acc + t * kPanelRows, 0);
    t += n;
  }
}

/// One lane of a group times one tile: by several panels at once where the set can, then one by one.
void run_group_tile(const Lane& lane, const Group& group, size_t l, const Activations& x, size_t tile,
                    float* acc) {
  const size_t wide = x.tile_tokens(tile) == kMaxTokens ? x.kernels().wide_panels : 0;
  const size_t slot = group.slot_bytes[l];
  size_t p = 0;
  for (; wide > 0 && p + wide <= group.count; p += wide) {
    lane.dot_wide(group.lanes[l] + p * slot, slot, group.blocks[l], x.record(tile, 0, group.first_block),
                  x.tile_stride(tile), acc + p * kAccFloats);
  }
  for (; p < group.count; ++p) {
    dot_unpacked_tile(lane, group.lanes[l] + p * slot, group.first_block, group.blocks[l], x, tile,
                      acc + p * kAccFloats);
  }
}

/// One lane of a group times the strip that begins with a tile.
void run_group_strip(const Lane& lane, const Group& group, size_t l, const Activations& x, size_t tile,
                     float* acc) {
  static_assert(kStripTokens == 2 * kMaxTokens);
  const TileStrips records = {x.record(tile, 0, group.first_block), x.tile_stride(tile), 1, x.strip_bytes()};
  lane.dot_tiles({group.lanes[l], group.slot_bytes[l], group.count, group.blocks[l]}, records, acc);
}

/// Runs a group over the tiles [first, last). `sums`: where those of tile `first` are, the others behind it;
/// with `whole` every tile's are used once and share that place.
class GroupRun {
 public:
  GroupRun(const Job& job, const Lane* lanes, const Activations& x)
      : job_(job), lanes_(lanes), x_(x), blocks_(std::max(lanes[0].blocks(), lanes[job.lanes - 1].blocks())) {
    const bool tiles = lanes[0].dot_tiles != nullptr && lanes[job.lanes - 1].dot_tiles != nullptr;
    strip_tiles_ = tiles ? x.whole_strips() * x.strip_tokens() / kMaxTokens : 0;
  }

  /// Of the lane that has more.
  size_t blocks() const { return blocks_; }

  void run(const Group& group, size_t first, size_t last, const Sums& sums, bool whole) {
    const bool begins = group.first_block == 0;
    const bool ends = group.first_block + kSliceBlocks >= blocks_;
    for (size_t tile = first; tile < last;) {
      const size_t count = tile < strip_tiles_ ? 2 : 1;
      const size_t at = whole ? 0 : (tile - first) * group.count * kAccFloats;
      for (size_t l = 0; l < job_.lanes; ++l) {
        float* acc = sums.lanes[l] + at;
        if (begins) std::memset(acc, 0, count * group.count * kAccFloats * sizeof(float));
        if (group.blocks[l] == 0) continue;
        count == 2 ? run_group_strip(lanes_[l], group, l, x_, tile, acc)
                   : run_group_tile(lanes_[l], group, l, x_, tile, acc);
      }
      if (ends) finish_tiles(group, tile, count, sums.lanes[0] + at, sums.lanes[1] + at);
      tile += count;
    }
  }

 private:
  void finish_tiles(const Group& group, size_t tile, size_t count, float* acc, float* second) {
    for (size_t p = 0; p < group.count; ++p) {
      for (size_t i = 0; i < count; ++i, acc += kAccFloats, second += kAccFloats) {
        finish(job_, x_, group.first_panel + p, tile + i, acc, second);
      }
    }
  }

  const Job& job_;
  const Lane* lanes_;
  const Activations& x_;
  size_t blocks_;
  size_t strip_tiles_;  // tiles in whole strips, where there are kernels for them
};

/// Panels [first, last) by groups. Wide rows go by slices of columns, so that a group of panels stays in the
/// second-level cache and tokens are read as seldom as for narrow rows.
void run_unpacked(const Job& job, const Lane* lanes, size_t first, size_t last, const Activations& x,
                  std::byte* scratch) {
  alignas(64) float once[2][kGroupPanels * 2 * kAccFloats];
  GroupRun run(job, lanes, x);
  const size_t blocks = run.blocks();
  const bool whole = blocks <= kSliceBlocks;
  auto* waiting = reinterpret_cast<float*>(scratch + kLinearWeightBytes);
  const size_t most_tiles = whole ? x.tiles() : kSumTiles / job.lanes;
  const Sums sums = whole
                        ? Sums{{once[0], once[1]}}
                        : Sums{{waiting, waiting + (job.lanes - 1) * most_tiles * kGroupPanels * kAccFloats}};
  for (size_t tile = 0; tile < x.tiles(); tile += most_tiles) {
    const size_t end = std::min(tile + most_tiles, x.tiles());
    Group group{};
    for (group.first_panel = first; group.first_panel < last; group.first_panel += group.count) {
      group.count = std::min(kGroupPanels, last - group.first_panel);
      for (group.first_block = 0; group.first_block < blocks; group.first_block += kSliceBlocks) {
        for (size_t l = 0; l < job.lanes; ++l) {
          const size_t rest = lanes[l].blocks() - std::min(group.first_block, lanes[l].blocks());
          group.blocks[l] = std::min(kSliceBlocks, rest);
          group.slot_bytes[l] = group.blocks[l] * lanes[l].unpacked_block_bytes;
          group.lanes[l] = scratch + l * (kLinearWeightBytes / 2);
        }
        unpack_group(job, lanes, group);
        run.run(group, tile, end, sums, whole);
      }
    }
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
              scratch == nullptr ? sizeof(least) : kLinearWeightBytes);
  run.run(first, last, [&](size_t panel, size_t tile, float* acc, const float* second) {
    finish(job, x, panel, tile, acc, second);
  });
}

void run_job(const Job& job, size_t first, size_t last, const Activations& x, const StreamPlan& plan) {
  if (first >= last) return;
  if (x.compute() == Compute::kBf16) return run_bf16(job, first, last, x);
  const Lane lanes[2] = {Lane(*job.w[0], x), Lane(*job.w[job.lanes - 1], x)};
  const bool quantised = lanes[0].quantised && lanes[1].quantised;
  std::byte* scratch = quantised && x.tokens() >= kUnpackTokens ? thread_scratch() : nullptr;
  if (scratch != nullptr) return run_unpacked(job, lanes, first, last, x, scratch);
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
