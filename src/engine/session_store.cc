#include "engine/session_store.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <optional>

#include "engine/prefix_store.h"
#include "kv/kv_codec.h"

namespace isthmus {
namespace {

using SwitchClock = std::chrono::steady_clock;

double switch_seconds_since(SwitchClock::time_point start) {
  return std::chrono::duration<double>(SwitchClock::now() - start).count();
}

constexpr size_t kMeasuredTokens = 64;
constexpr int kAllLevels[] = {8, 4, 2};

size_t tokens_of_chunk(size_t tokens, size_t chunk) {
  return std::min(kBlockKeys, tokens - chunk * kBlockKeys);
}

Status check_model(const LanguageModel& model, const SessionStoreOptions& options) {
  if (model.options().eviction.on() || model.options().kv_codec.on()) {
    return unsupported(
        "sessions are kept of whole KV caches as written: without a policy that gives up keys, and without "
        "codes "
        "for all blocks");
  }
  if (model.key_encoding() != KeyEncoding::kAbsolute) {
    return unsupported("sessions need keys that are rotated by absolute positions");
  }
  const auto& levels = model.options().kv_levels;
  for (const int bits : session_levels(options.bits)) {
    if (std::find(levels.begin(), levels.end(), bits) == levels.end()) {
      return invalid_argument("the model was loaded without blocks of " + std::to_string(bits) + " bits");
    }
  }
  return ok_status();
}

}  // namespace

std::vector<int> session_levels(int bits) {
  if (bits == kMixedBits) return {std::begin(kAllLevels), std::end(kAllLevels)};
  return bits == 16 ? std::vector<int>{} : std::vector<int>{bits};
}

Result<int> parse_session_bits(std::string_view text) {
  if (text == "mixed") return kMixedBits;
  for (const int bits : {16, 8, 4, 2}) {
    if (text == std::to_string(bits)) return bits;
  }
  return invalid_argument("'" + std::string(text) + "' is no way to keep sessions: 16, 8, 4, 2 or mixed");
}

Result<std::unique_ptr<SessionStore>> SessionStore::create(std::shared_ptr<LanguageModel> model,
                                                           SessionStoreOptions options) {
  ISTHMUS_RETURN_IF_ERROR(check_model(*model, options));
  std::unique_ptr<SessionStore> out(new SessionStore(std::move(model), std::move(options)));
  ISTHMUS_ASSIGN_OR_RETURN(out->session_, Session::create(out->model_));
  out->pool_ = out->session_->kv().pool();
  if (out->options_.tier != nullptr) {
    ISTHMUS_ASSIGN_OR_RETURN(out->identity_, model_kv_identity(out->options_.model, rope_choice(*out->model_),
                                                               out->options_.digest));
  }
  if (out->options_.bits == kMixedBits) {
    out->geometry_ = std::make_unique<AttentionGeometry>(out->model_->transformer().attention_geometry());
    const size_t window = KeyScoring{}.window;
    ISTHMUS_ASSIGN_OR_RETURN(
        out->charge_,
        out->model_->ledger().charge(MemoryKind::kWork, QueryRecord::bytes(*out->geometry_, window, false)));
    out->record_ = std::make_unique<QueryRecord>(*out->geometry_, window, false);
    out->session_->watch_queries(out->record_.get());
  }
  out->pool_->add_reclaimer(*out);
  return out;
}

SessionStore::~SessionStore() {
  if (pool_ == nullptr) return;
  pool_->remove_reclaimer(*this);
  for (auto& [name, entry] : entries_) {
    for (Chunk& chunk : entry.chunks) release_chunk(chunk);
  }
}

int64_t SessionStore::now() const {
  if (options_.now_ns) return options_.now_ns();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t SessionStore::parked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, entry] : entries_) {
    for (const Chunk& chunk : entry.chunks) {
      for (const BlockId id : chunk.ids) bytes += pool_->block_bytes(id);
    }
  }
  return bytes;
}

std::vector<int> SessionStore::held_bits(const std::string& name) const {
  std::vector<int> out;
  const auto found = entries_.find(name);
  if (found == entries_.end()) return out;
  for (const Chunk& chunk : found->second.chunks) {
    if (!chunk.ids.empty()) out.push_back(chunk.kept.bits);
  }
  return out;
}

/// Blocks that came free.
size_t SessionStore::release_chunk(Chunk& chunk) {
  const size_t n = chunk.ids.size();
  for (const BlockId id : chunk.ids) pool_->release(id);
  chunk.ids.clear();
  return n;
}

size_t SessionStore::reclaim(size_t blocks) {
  const size_t before = pool_->free_blocks();
  std::vector<Entry*> order;  // used longest ago first
  for (auto& [name, entry] : entries_) {
    if (name != active_ && name != locked_) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->used < b->used; });
  for (const int bits : {16, 8, 4, 2}) {
    for (Entry* entry : order) {
      for (Chunk& chunk : entry->chunks) {
        if (chunk.kept.bits != bits || chunk.ids.empty()) continue;
        release_chunk(chunk);
        // Coded blocks share slabs: what came free is what can be had.
        const size_t free = pool_->free_blocks();
        if (free >= before + blocks) return free - before;
      }
    }
  }
  return pool_->free_blocks() - before;
}

/// How blocks kept like this are stored.
KvSpace SessionStore::space(const Entry& entry, const SessionChunk& kept) const {
  KvSpace out = kv_space(session_->kv(), model_->prompt_compute(), entry.identity, {});
  out.computed_by = kept.computed;
  out.coded.clear();
  out.residual = 0;
  if (kept.bits == 16) return out;
  out.exactness = Exactness::kQuantised;
  out.coded.assign(model_->config().layers, level_format(kept.bits));
  out.residual = kBlockKeys;
  return out;
}

/// Of all chunks, the last one's tokens filled up, as if all were kept like this.
Result<std::vector<Digest>> SessionStore::keys(const Entry& entry, const SessionChunk& kept) const {
  std::vector<int32_t> tokens = entry.text.tokens;
  tokens.resize((tokens.size() + kBlockKeys - 1) / kBlockKeys * kBlockKeys, -1);
  ISTHMUS_ASSIGN_OR_RETURN(KvKeys made, kv_keys(space(entry, kept), tokens, options_.digest));
  return std::move(made.blocks);
}

Result<SessionStore::Entry*> SessionStore::find(const std::string& name) {
  const auto known = entries_.find(name);
  if (known != entries_.end()) return &known->second;
  Entry made;
  made.text.name = name;
  made.text.created_ns = now();
  if (options_.archive != nullptr) {
    auto loaded = options_.archive->load(name);
    if (loaded.ok()) {
      made.text = std::move(*loaded);
      if (made.text.model != hex_of(options_.model)) {
        return failed_precondition("the session '" + name + "' belongs to another model" +
                                   (made.text.label.empty() ? "" : ": " + made.text.label));
      }
    } else if (loaded.status().code() != Code::kNotFound) {
      return loaded.status();
    }
  }
  if (options_.digest != nullptr) {
    const std::string whose = "isthmus session " + hex_of(identity_) + " " + name;
    ISTHMUS_ASSIGN_OR_RETURN(made.identity, options_.digest(std::as_bytes(std::span(whose))));
    made.text.kv = hex_of(made.identity);
  }
  made.text.model = hex_of(options_.model);
  made.text.label = options_.label;
  for (const int32_t token : made.text.tokens) {
    if (token < 0 || static_cast<size_t>(token) >= model_->config().vocab) {
      return corrupt("the session '" + name + "' has tokens that the model does not know");
    }
  }
  for (const SessionChunk& kept : made.text.chunks) {
    made.chunks.emplace_back();
    made.chunks.back().kept = kept;
    made.chunks.back().stored = true;
  }
  return &(entries_[name] = std::move(made));
}

Status SessionStore::drop(const std::string& name) {
  if (!is_session_name(name)) return invalid_argument("'" + name + "' is no name of a session");
  const auto found = find(name);
  if (found.ok()) {
    if (name == active_) {
      (void)session_->take_kv();
      active_.clear();
    }
    forget_from(**found, 0);
    entries_.erase(name);
  }
  return options_.archive == nullptr ? ok_status() : options_.archive->remove(name);
}

/// Chunks from `chunk` on hold another text now.
void SessionStore::forget_from(Entry& entry, size_t chunk) {
  for (size_t i = chunk; i < entry.chunks.size(); ++i) {
    release_chunk(entry.chunks[i]);
    if (!entry.chunks[i].stored || options_.tier == nullptr) continue;
    const auto known = keys(entry, entry.chunks[i].kept);
    if (known.ok()) options_.tier->forget((*known)[i]);
  }
  if (chunk >= entry.chunks.size()) return;
  entry.chunks.resize(chunk);
  if (options_.tier == nullptr) return;
  // A record that went may have held chunks before.
  for (size_t i = chunk - std::min(chunk, kKvRecordBlocks); i < chunk; ++i) {
    const auto known = keys(entry, entry.chunks[i].kept);
    entry.chunks[i].stored = known.ok() && options_.tier->holds((*known)[i]);
  }
}

/// One session's way back into memory.
class SessionStore::Restore {
 public:
  Restore(SessionStore& store, Entry& entry)
      : store_(store), entry_(entry), kv_(store.model_->make_sequence()) {}

  Status run(const StopPolicy& stop, SwitchFigures& out) {
    out.tokens = entry_.text.tokens.size();
    plan();
    start_reading();
    Status status = put_together(stop, out);
    if (reading_.valid()) reading_.wait();
    return status;
  }

 private:
  enum class Way : uint8_t { kMemory, kComputed, kRead };
  /// One record, or what is left of it.
  struct Bytes {
    Status status;
    std::vector<std::byte> bytes;
  };

  void plan() {
    const size_t chunks = entry_.chunks.size();
    ways_.assign(chunks, Way::kMemory);
    keys_.resize(chunks);
    std::vector<MissingPart> missing;
    std::vector<size_t> places;
    std::map<std::pair<int, int>, std::vector<Digest>> known;
    for (size_t i = 0; i < chunks; ++i) {
      Chunk& chunk = entry_.chunks[i];
      if (!chunk.ids.empty()) continue;
      MissingPart part{tokens_of_chunk(entry_.text.tokens.size(), i), 0, 0};
      if (chunk.stored && store_.options_.tier != nullptr) {
        auto& list = known[{chunk.kept.bits, chunk.kept.computed}];
        if (list.empty()) {
          auto made = store_.keys(entry_, chunk.kept);
          if (made.ok()) list = std::move(*made);
        }
        chunk.stored = i < list.size() && store_.options_.tier->holds(list[i]);
        if (chunk.stored) {
          keys_[i] = list[i];
          part.records = 1;  // at most: alike ones share some
          part.bytes = kv_space_block_bytes(store_.space(entry_, chunk.kept));
        }
      }
      missing.push_back(part);
      places.push_back(i);
    }
    early_ = plan_restore(missing, store_.speeds_);
    for (size_t m = 0; m < places.size(); ++m) {
      const bool read = m >= early_ && missing[m].records > 0;
      ways_[places[m]] = read ? Way::kRead : Way::kComputed;
      if (m < early_) early_end_ = places[m] + 1;
    }
  }

  /// Reads the records one after the other while the early chunks are computed.
  void start_reading() {
    std::vector<size_t> wanted;
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (ways_[i] == Way::kRead) wanted.push_back(i);
    }
    if (wanted.empty()) return;
    bytes_.resize(ways_.size());
    const auto work = [this, wanted] {
      const auto start = SwitchClock::now();
      size_t covered = 0;  // chunks before this one came with an earlier record
      for (const size_t i : wanted) {
        if (i < covered) continue;
        auto read = store_.options_.tier->read(*keys_[i]);
        bytes_[i].status = read.status();
        if (!read.ok()) continue;
        bytes_[i].bytes = std::move(*read);
        covered = covered_by(bytes_[i].bytes, i);
        read_bytes_ += bytes_[i].bytes.size();
        ++records_;
      }
      read_seconds_ = switch_seconds_since(start);
    };
    reading_ = std::async(std::launch::async, work);
  }

  /// The first chunk behind `i` that a record does not have.
  size_t covered_by(std::span<const std::byte> bytes, size_t i) const {
    const auto head = parse_record_head(bytes);
    if (!head.ok()) return i + 1;
    const size_t first = head->first_token / kBlockKeys;
    while (i < keys_.size() && i >= first && i - first < head->keys.size() &&
           keys_[i] == head->keys[i - first])
      ++i;
    return i;
  }

  Status put_together(const StopPolicy& stop, SwitchFigures& out) {
    for (size_t i = 0; i < early_end_; ++i) ISTHMUS_RETURN_IF_ERROR(append_chunk(i, out));
    ISTHMUS_RETURN_IF_ERROR(compute(stop, out));
    if (reading_.valid()) reading_.wait();
    if (records_ > 0) store_.speeds_.read(records_, read_bytes_, read_seconds_);
    out.read_bytes = read_bytes_;
    for (size_t i = early_end_; i < ways_.size(); ++i) ISTHMUS_RETURN_IF_ERROR(append_chunk(i, out));
    ISTHMUS_RETURN_IF_ERROR(compute(stop, out));
    store_.session_->adopt(std::move(kv_), entry_.text.tokens);
    return ok_status();
  }

  Status append_chunk(size_t i, SwitchFigures& out) {
    const size_t n = tokens_of_chunk(entry_.text.tokens.size(), i);
    Chunk& chunk = entry_.chunks[i];
    if (ways_[i] == Way::kMemory) {
      kv_.append_shared(chunk.ids, n);
      out.memory_tokens += n;
      return ok_status();
    }
    if (ways_[i] == Way::kRead) {
      Status taken = take_record(i, n);
      if (taken.ok()) {
        out.stored_tokens += n;
        return ok_status();
      }
      if (taken.code() == Code::kResourceExhausted) return taken;
      out.reason = taken.message();
      chunk.stored = false;
    }
    const auto first = static_cast<uint32_t>(kv_.length());
    ISTHMUS_RETURN_IF_ERROR(kv_.append_blank(n, Exactness::kExact));
    for (uint32_t t = 0; t < n; ++t) anew_.push_back(first + t);
    return ok_status();
  }

  /// Chunk `i` out of its record, which may have begun before it.
  Status take_record(size_t i, size_t n) {
    if (!bytes_[i].bytes.empty()) source_ = i;
    if (!bytes_[i].status.ok()) return bytes_[i].status;
    if (!source_) return not_found("the record is gone");
    const auto record = KvRecord::parse(bytes_[*source_].bytes);
    Status status = record.status();
    if (status.ok()) status = record->check_space(store_.space(entry_, entry_.chunks[i].kept));
    if (status.ok() && (record->first_block() > i || i >= record->first_block() + record->blocks() ||
                        record->head().keys[i - record->first_block()] != *keys_[i])) {
      status = corrupt("the record holds something else");
    }
    if (status.ok()) status = record->append_to(kv_, i - record->first_block(), 1);
    if (status.ok() && n < kBlockKeys) status = kv_.truncate(kv_.length() - (kBlockKeys - n));
    if (!status.ok() && status.code() != Code::kResourceExhausted) store_.options_.tier->refuse(*keys_[i]);
    return status;
  }

  Status compute(const StopPolicy& stop, SwitchFigures& out) {
    if (anew_.empty()) return ok_status();
    const auto start = SwitchClock::now();
    const size_t length = kv_.length();
    const std::vector<TokenId> text(entry_.text.tokens.begin(),
                                    entry_.text.tokens.begin() + static_cast<ptrdiff_t>(length));
    store_.session_->adopt(std::move(kv_), text);
    Status status = store_.session_->recompute(anew_, stop);
    kv_ = store_.session_->take_kv();
    if (!status.ok()) return status;
    out.computed_tokens += anew_.size();
    // A few tokens cost a step, not a share of one.
    if (anew_.size() >= kMeasuredTokens) store_.speeds_.computed(anew_.size(), switch_seconds_since(start));
    anew_.clear();
    return ok_status();
  }

  SessionStore& store_;
  Entry& entry_;
  KvSequence kv_;
  std::vector<Way> ways_;
  std::vector<std::optional<Digest>> keys_;
  size_t early_ = 0;      // missing chunks that are computed while others are read
  size_t early_end_ = 0;  // chunks up to the last of them
  std::vector<uint32_t> anew_;
  std::vector<Bytes> bytes_;  // by the first chunk that wants the record
  std::optional<size_t> source_;
  std::future<void> reading_;
  uint64_t read_bytes_ = 0;
  size_t records_ = 0;
  double read_seconds_ = 0;
};

Result<SwitchFigures> SessionStore::activate(const std::string& name, const StopPolicy& stop) {
  if (!is_session_name(name)) {
    return invalid_argument("'" + name +
                            "' is no name of a session: letters, digits, '-', '_' and '.', at most " +
                            std::to_string(kMaxSessionName));
  }
  SwitchFigures out;
  if (!active_.empty() && active_ != name) ISTHMUS_RETURN_IF_ERROR(park().status());
  const auto start = SwitchClock::now();
  ISTHMUS_ASSIGN_OR_RETURN(Entry * found, find(name));
  found->used = ++uses_;
  found->text.used_ns = now();
  if (active_ == name) {
    out.tokens = out.memory_tokens = session_->tokens().size();
    return out;
  }
  if (found->text.tokens.size() > model_->context()) {
    return resource_exhausted("the session '" + name + "' has " + std::to_string(found->text.tokens.size()) +
                              " tokens, the context holds " + std::to_string(model_->context()));
  }
  locked_ = name;
  Status status = Restore(*this, *found).run(stop, out);
  locked_.clear();
  if (!status.ok()) {
    (void)session_->take_kv();
    return status;
  }
  for (Chunk& chunk : found->chunks) release_chunk(chunk);  // the session holds them
  active_ = name;
  out.seconds = switch_seconds_since(start);
  return out;
}

}  // namespace isthmus
