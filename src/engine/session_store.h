// Sessions of many apps over one budget of memory (LLMS, Yin et al. 2024, arXiv 2403.11805): one session is
// active, the others are parked, in memory as far as there is room, and on disk.
//
// Parking codes the new blocks of a session to few bits where that was asked for, writes them to the tier and
// the text to the archive, and then memory may be taken from it at any time. It goes least compressed first
// (as written, 8, 4, 2 bits), and among those from the session used longest ago (LLMS's LCTRU); never from
// the active one. Activating brings back what is gone: read, computed anew, or both at once as plan_restore()
// splits it. A session's text is never lost: whatever the tier lacks is computed from it. With 16 bits a
// session that comes back has the bits of one that was never parked (in the integer classes).
//
// One thread, which alone uses the model's KV pool. Tier and archive outlive it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/record_tier.h"
#include "base/session_archive.h"
#include "engine/restore_plan.h"
#include "engine/session.h"
#include "kv/kv_record.h"
#include "kv/query_record.h"

namespace isthmus {

/// SessionStoreOptions::bits: 8, 4 or 2 by density, 4 in the mean.
inline constexpr int kMixedBits = 0;

struct SessionStoreOptions {
  /// Of parked blocks: 16 (as written), 8, 4, 2, or kMixedBits. Below 16 the model was loaded with these
  /// levels (ModelOptions::kv_levels), and what follows is approximate.
  int bits = 16;
  SessionArchive* archive = nullptr;  // null: texts are kept in memory alone
  RecordTier* tier = nullptr;         // null: KV is, and what has to go is computed anew
  DigestFunction digest = nullptr;    // with a tier
  Digest model{};                     // of the model's files
  std::string label = {};
  std::function<int64_t()> now_ns = {};  // since the epoch; empty: the system clock
};

/// Bits that ModelOptions::kv_levels must have.
std::vector<int> session_levels(int bits);
/// "16", "8", "4", "2", "mixed". kInvalidArgument lists them.
Result<int> parse_session_bits(std::string_view text);

/// Bringing a session back.
struct SwitchFigures {
  size_t tokens = 0;
  size_t memory_tokens = 0;    // were in memory
  size_t stored_tokens = 0;    // were read
  size_t computed_tokens = 0;  // were computed anew
  uint64_t read_bytes = 0;
  double seconds = 0;
  std::string reason;  // why something that was stored could not be used
};

/// Putting one away.
struct ParkFigures {
  size_t coded_blocks = 0;
  size_t records = 0;
  uint64_t written_bytes = 0;
  double seconds = 0;
  std::string reason;  // why not everything is stored
};

class SessionStore final : public BlockReclaimer {
 public:
  /// kUnsupported with a policy that gives up keys, with codes and with keys not rotated by absolute
  /// positions; kInvalidArgument when the model lacks the levels.
  static Result<std::unique_ptr<SessionStore>> create(std::shared_ptr<LanguageModel> model,
                                                      SessionStoreOptions options);
  ~SessionStore() override;

  /// Parks the active session and makes `name` active, new when it is not known. kInvalidArgument for a bad
  /// name, kFailedPrecondition for one of another model, the archive's errors but kNotFound,
  /// kResourceExhausted when it does not fit the pool, kCancelled, kDeadlineExceeded. On an error no session
  /// is active, and none is lost.
  Result<SwitchFigures> activate(const std::string& name, const StopPolicy& stop = {});
  /// Puts the active session away: its text is durable when this returns. No session is active then. The
  /// errors of the archive; the session stays active with them.
  Result<ParkFigures> park();
  /// Forgets a session, its text and its records. OK when there is none.
  Status drop(const std::string& name);

  /// The active session's; empty otherwise.
  Session& session() { return *session_; }
  const std::string& active() const { return active_; }
  /// The active session's text, of which messages, rendered and rest are the caller's to read and to set.
  SessionText& text() { return entry().text; }

  /// Bytes of parked KV in memory.
  uint64_t parked_bytes() const;
  /// Bits of a session's chunks that are parked in memory.
  std::vector<int> held_bits(const std::string& name) const;
  const RestoreSpeeds& speeds() const { return speeds_; }
  RestoreSpeeds& speeds() { return speeds_; }

  /// BlockReclaimer: takes memory from parked sessions.
  size_t reclaim(size_t blocks) override;

 private:
  struct Chunk {
    SessionChunk kept;
    std::vector<BlockId> ids;  // of each stream; empty: not in memory
    bool stored = false;       // believed to be in the tier
    double density = 0;
    size_t seen = 0;  // times that density was measured
  };
  struct Entry {
    SessionText text;
    Digest identity{};          // of its records
    std::vector<Chunk> chunks;  // as SessionText::chunks
    uint64_t used = 0;          // by order of use
  };
  class Restore;

  SessionStore(std::shared_ptr<LanguageModel> model, SessionStoreOptions options)
      : model_(std::move(model)), options_(std::move(options)) {}
  Entry& entry() { return entries_[active_]; }
  Result<Entry*> find(const std::string& name);
  KvSpace space(const Entry& entry, const SessionChunk& kept) const;
  Result<std::vector<Digest>> keys(const Entry& entry, const SessionChunk& kept) const;
  size_t release_chunk(Chunk& chunk);
  void forget_from(Entry& entry, size_t chunk);
  void measure_density(Entry& entry, const KvSequence& kv);
  void choose_bits(Entry& entry, KvSequence& kv, size_t known, ParkFigures& out);
  Status store_chunks(Entry& entry, const KvSequence& kv, ParkFigures& out);
  Status store_run(Entry& entry, const KvSequence& kv, size_t first, size_t count, ParkFigures& out);
  Status store_tail(Entry& entry, const KvSequence& kv, ParkFigures& out);
  void take_apart(Entry& entry, const KvSequence& kv);
  int64_t now() const;

  std::shared_ptr<LanguageModel> model_;
  SessionStoreOptions options_;
  Digest identity_{};
  std::unique_ptr<AttentionGeometry> geometry_;
  std::unique_ptr<QueryRecord> record_;  // of the active session, with kMixedBits
  Charge charge_;
  std::shared_ptr<BlockPool> pool_;
  std::unique_ptr<Session> session_;
  std::map<std::string, Entry> entries_;
  std::string active_;
  std::string locked_;  // being brought back
  uint64_t uses_ = 0;
  RestoreSpeeds speeds_;
};

}  // namespace isthmus
