#include "ops/attention.h"

#include <algorithm>
#include <atomic>

#include "ops/attention_unit.h"

namespace isthmus {
namespace {

using namespace attention_unit;  // NOLINT: this file is the other half of that header

constexpr size_t kMaxThreads = 1008;

/// At the start of the scratch; all zero between calls.
struct Counters {
  uint32_t next_unit;  // ticket of whole units
  uint32_t leavers;    // threads that found no more units
  uint32_t padding[14];
  uint32_t ranges_done[kMaxThreads];  // of the shared unit that begins in this thread's share
};

/// Bytes of the (max, sum, acc) of all ranges of one shared unit.
size_t shared_bytes(const Shape& shape, size_t tokens, size_t keys) {
  const size_t rows = std::min(tokens, shape.tile_tokens) * shape.group;
  return (keys + kRangeKeys - 1) / kRangeKeys * state_bytes(rows, shape.dim);
}

struct Extent {
  size_t tokens = 0;  // most of one sequence
  size_t keys = 0;    // most of one stream
};
Extent extent_of(const AttentionArgs& args) {
  Extent extent;
  for (const AttentionSeq& seq : args.seqs) {
    extent.tokens = std::max(extent.tokens, seq.tokens);
    for (const KvStreamRef& stream : seq.heads) extent.keys = std::max(extent.keys, stream.keys);
  }
  return extent;
}

/// Whole units, taken by ticket. The last thread to leave resets the tickets.
void run_units(const AttentionArgs& args, const Shape& shape, UnitRunner& runner, Counters& counters,
               size_t count) {
  std::atomic_ref<uint32_t> ticket(counters.next_unit);
  const auto take = [&] { return static_cast<size_t>(ticket.fetch_add(1, std::memory_order_relaxed)); };
  size_t mine = count == 1 ? 0 : take();
  for_each_unit(args, shape, [&](const Unit& unit, size_t index) {
    if (index != mine) return;
    mine = count == 1 ? index + 1 : take();
    runner.open(unit);
    runner.run_all();
  });
  if (count == 1) return;
  std::atomic_ref<uint32_t> leavers(counters.leavers);
  if (leavers.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    ticket.store(0, std::memory_order_relaxed);
    leavers.store(0, std::memory_order_relaxed);
  }
}

/// This thread's ranges [from, to) of a unit that other threads share. Whoever finishes the unit's last range
/// joins all of them in ascending order, so the result does not depend on who that is.
void run_shared(const Shape& shape, UnitRunner& runner, const Unit& unit, std::byte* partials, uint32_t& done,
                size_t from, size_t to) {
  const size_t rows = unit.tokens * shape.group;
  const size_t stride = state_bytes(rows, shape.dim);
  const auto partial = [&](size_t i) {
    Carver carver(partials + i * stride);
    return carve_state(carver, rows, shape.dim);
  };
  for (size_t i = from; i < to; ++i) runner.run_range(unit.first_range() + i, partial(i));
  std::atomic_ref<uint32_t> counter(done);
  const uint32_t added = static_cast<uint32_t>(to - from);
  if (counter.fetch_add(added, std::memory_order_acq_rel) + added != unit.ranges()) return;
  counter.store(0, std::memory_order_relaxed);
  for (size_t i = 0; i < unit.ranges(); ++i) runner.join(partial(i));
  runner.write();
}

/// All ranges of all units in one line, cut into equal shares. At most one unit begins in a thread's share
/// and ends in a later one, so each thread needs memory and a counter for one shared unit.
void run_split(const AttentionArgs& args, const Shape& shape, UnitRunner& runner, Counters& counters,
               std::byte* partials, size_t index, size_t count) {
  // A unit without ranges still has rows to write, so it weighs one.
  const auto weight = [](const Unit& unit) { return std::max<size_t>(1, unit.ranges()); };
  size_t total = 0;
  for_each_unit(args, shape, [&](const Unit& unit, size_t) { total += weight(unit); });
  const Extent extent = extent_of(args);
  const size_t stride = shared_bytes(shape, extent.tokens, extent.keys);
  const auto share = [&](size_t thread) { return total * thread / count; };
  size_t at = 0;
  size_t owner = 0;  // the thread in whose share `at` lies
  for_each_unit(args, shape, [&](const Unit& unit, size_t) {
    while (share(owner + 1) <= at) ++owner;
    const size_t begin = std::max(share(index), at) - at;
    const size_t end = std::max(std::min(share(index + 1) - at, weight(unit)), begin);
    if (share(index + 1) > at && begin < end) {
      runner.open(unit);
      if (end - begin == weight(unit)) {
        runner.run_all();
      } else {
        run_shared(shape, runner, unit, partials + owner * stride, counters.ranges_done[owner], begin, end);
      }
    }
    at += weight(unit);
  });
}

size_t scratch_bytes(const Shape& shape, size_t tokens, size_t keys, size_t threads) {
  const size_t shared = threads > 1 ? shared_bytes(shape, tokens, keys) : 0;
  return attention_counter_bytes() + threads * (Workspace(nullptr, shape).bytes + shared);
}

}  // namespace

size_t attention_counter_bytes() { return align64(sizeof(Counters)); }

size_t attention_scratch_bytes(const AttentionArgs& args, size_t threads) {
  const Extent extent = extent_of(args);
  return scratch_bytes(Shape(args), extent.tokens, extent.keys, threads);
}

size_t attention_scratch_bytes(const AttentionHeads& heads, size_t tokens, size_t keys, size_t threads) {
  return scratch_bytes(Shape(heads, attention_kernels()), tokens, keys, threads);
}

void attention(const AttentionArgs& args, std::byte* scratch, size_t index, size_t count) {
  Shape shape(args);
  if (count > 1) shape.shrink_tile(args, count);
  Counters& counters = *reinterpret_cast<Counters*>(scratch);
  std::byte* memory = scratch + attention_counter_bytes();
  const size_t workspace_bytes = Workspace(nullptr, shape).bytes;
  UnitRunner runner(args, shape, memory + index * workspace_bytes);
  if (splits(count_units(args, shape), count)) {
    run_split(args, shape, runner, counters, memory + count * workspace_bytes, index, count);
  } else {
    run_units(args, shape, runner, counters, count);
  }
}

void attention(const AttentionArgs& args, std::byte* scratch, Worker& worker) {
  attention(args, scratch, worker.index(), worker.count());
}

}  // namespace isthmus
