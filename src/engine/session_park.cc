// SessionStore: how a session is put away.
#include <algorithm>
#include <chrono>

#include "engine/session_store.h"
#include "kv/key_scores.h"
#include "kv/kv_codec.h"

namespace isthmus {
namespace {

using ParkClock = std::chrono::steady_clock;

/// The arithmetic that wrote the blocks at one place of a text.
ComputeSet computed_at(const KvSequence& kv, size_t block) {
  ComputeSet out = 0;
  for (size_t layer = 0; layer < kv.layers(); ++layer) {
    for (size_t head = 0; head < kv.kv_heads(); ++head) out |= kv.computed_by(layer, head, block);
  }
  return out;
}

}  // namespace

Result<ParkFigures> SessionStore::park() {
  ParkFigures out;
  if (active_.empty()) return out;
  const auto start = ParkClock::now();
  Entry& put = entry();
  const auto text = session_->tokens();
  const auto same = std::mismatch(put.text.tokens.begin(), put.text.tokens.end(), text.begin(), text.end());
  const auto common = static_cast<size_t>(same.first - put.text.tokens.begin());
  const bool unchanged = common == text.size() && common == put.text.tokens.size();
  const size_t known = unchanged ? put.chunks.size() : common / kBlockKeys;
  forget_from(put, known);
  put.text.tokens.assign(text.begin(), text.end());
  put.chunks.resize((text.size() + kBlockKeys - 1) / kBlockKeys);
  if (record_ != nullptr) measure_density(put, session_->kv());
  KvSequence kv = session_->take_kv();
  choose_bits(put, kv, known, out);
  Status stored = options_.tier == nullptr ? ok_status() : store_chunks(put, kv, out);
  if (stored.ok() && options_.tier != nullptr) stored = store_tail(put, kv, out);
  if (!stored.ok()) out.reason = stored.message();
  put.text.chunks.clear();
  for (const Chunk& chunk : put.chunks) put.text.chunks.push_back(chunk.kept);
  put.text.used_ns = now();
  if (options_.archive != nullptr) {
    const Status saved = options_.archive->save(put.text);
    if (!saved.ok()) {
      session_->adopt(std::move(kv), put.text.tokens);
      return saved;
    }
  }
  take_apart(put, kv);
  active_.clear();
  out.seconds = std::chrono::duration<double>(ParkClock::now() - start).count();
  return out;
}

/// The attention that a chunk's keys got from the newest queries, in the mean over tokens, layers and heads
/// and over the times that it was measured.
void SessionStore::measure_density(Entry& entry, const KvSequence& kv) {
  KeyScoring scoring;
  scoring.kernel = 1;
  std::vector<double> sums(kv.length() / kBlockKeys);
  std::vector<float> scores;
  size_t streams = 0;
  for (size_t layer = 0; layer < kv.layers(); ++layer) {
    if (!geometry_->pruned[layer]) continue;
    for (size_t head = 0; head < kv.kv_heads(); ++head) {
      if (!score_keys(scoring, *geometry_, kv, record_.get(), layer, head, scores).ok()) return;
      for (size_t i = 0; i < sums.size() * kBlockKeys; ++i)
        sums[i / kBlockKeys] += static_cast<double>(scores[i]);
      ++streams;
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    Chunk& chunk = entry.chunks[i];
    const double density = sums[i] / static_cast<double>(std::max<size_t>(streams, 1) * kBlockKeys);
    chunk.density += (density - chunk.density) / static_cast<double>(++chunk.seen);
  }
}

/// Codes the full blocks: those from `known` on as their density says, the others as they were.
void SessionStore::choose_bits(Entry& entry, KvSequence& kv, size_t known, ParkFigures& out) {
  const size_t full = kv.length() / kBlockKeys;
  std::vector<double> density;
  for (size_t i = known; i < full; ++i) density.push_back(entry.chunks[i].density);
  const std::vector<int> mixed = bits_by_density(density);
  for (size_t i = 0; i < entry.chunks.size(); ++i) {
    Chunk& chunk = entry.chunks[i];
    if (i >= known || !chunk.stored) chunk.kept.computed = computed_at(kv, i);
    if (i >= full) continue;
    if (i >= known) chunk.kept.bits = options_.bits == kMixedBits ? mixed[i - known] : options_.bits;
    if (chunk.kept.bits == 16) continue;
    const bool was_coded = kv.coded(i);
    const Status coded = kv.recode(i, level_format(chunk.kept.bits));
    if (coded.ok()) {
      out.coded_blocks += was_coded ? 0 : 1;
    } else if (i >= known) {
      chunk.kept.bits = 16;
    }
  }
}

/// Writes what the tier does not have, up to kKvRecordBlocks alike in a record.
Status SessionStore::store_chunks(Entry& entry, const KvSequence& kv, ParkFigures& out) {
  const size_t full = kv.length() / kBlockKeys;
  for (size_t at = 0; at < full;) {
    size_t end = at;
    while (end < full && end - at < kKvRecordBlocks && !entry.chunks[end].stored &&
           entry.chunks[end].kept == entry.chunks[at].kept) {
      ++end;
    }
    if (end > at) ISTHMUS_RETURN_IF_ERROR(store_run(entry, kv, at, end - at, out));
    at = std::max(end, at + 1);
  }
  return ok_status();
}

Status SessionStore::store_run(Entry& entry, const KvSequence& kv, size_t first, size_t count,
                               ParkFigures& out) {
  const KvSpace wanted = space(entry, entry.chunks[first].kept);
  std::vector<int32_t> tokens = entry.text.tokens;
  tokens.resize(kv.length(), -1);
  ISTHMUS_ASSIGN_OR_RETURN(const KvKeys keys, kv_keys(wanted, tokens, options_.digest));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::byte> record,
                           encode_kv_record(kv, wanted, keys, tokens, first, count, options_.label));
  ISTHMUS_RETURN_IF_ERROR(options_.tier->write(record));
  for (size_t i = first; i < first + count; ++i) entry.chunks[i].stored = true;
  ++out.records;
  out.written_bytes += record.size();
  return ok_status();
}

/// The block that is not full, filled up with zeros.
Status SessionStore::store_tail(Entry& entry, const KvSequence& kv, ParkFigures& out) {
  const size_t held = kv.length() % kBlockKeys;
  if (held == 0 || entry.chunks.back().stored) return ok_status();
  KvSequence whole = kv.fork();
  ISTHMUS_RETURN_IF_ERROR(whole.append_zeros(kBlockKeys - held));
  return store_run(entry, whole, entry.chunks.size() - 1, 1, out);
}

/// The session's blocks become the chunks'.
void SessionStore::take_apart(Entry& entry, const KvSequence& kv) {
  for (size_t i = 0; i < entry.chunks.size(); ++i) {
    entry.chunks[i].ids.clear();
    kv.share_block(i, entry.chunks[i].ids);
  }
}

}  // namespace isthmus
