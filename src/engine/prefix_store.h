// Prompts that were read once, kept below memory: what a fresh process finds again.
//
// Over a RecordTier (base/record_tier.h: the flash tier of store/, wired by apps/). restore() gives a session
// the longest stored beginning of a prompt, whole blocks of 32 tokens short of its last token; save() keeps
// the whole blocks of a prompt that a session has read. Blocks carry what arithmetic made them, and only
// those of this model's prompt arithmetic are kept and taken, so a restored prompt has the bits of one that
// was read (in the integer classes, which do not depend on how a prompt is cut into steps).
//
// The tier can make nothing go wrong: whatever it lacks is a miss with a reason, and the prompt is read.
// Not thread-safe; the tier outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/digest.h"
#include "base/record_tier.h"
#include "engine/session.h"
#include "kv/kv_record.h"

namespace isthmus {

struct PrefixStoreOptions {
  RecordTier* tier = nullptr;
  DigestFunction digest = nullptr;
  /// Of the model's files.
  Digest model{};
  std::string salt = {};   // texts of different salts never meet
  std::string label = {};  // the model's name, for lists
};

/// What became of one prompt.
struct PrefixRestore {
  size_t memory_tokens = 0;  // the session had them
  size_t stored_tokens = 0;  // came from the tier
  size_t records = 0;
  uint64_t bytes = 0;
  double seconds = 0;
  std::string reason;  // why it ended there, where that was not the end of what is stored
};

struct PrefixSave {
  size_t tokens = 0;  // written now
  size_t records = 0;
  uint64_t bytes = 0;
  double seconds = 0;
  std::string reason;  // why not all of the prompt is kept
};

class PrefixStore {
 public:
  explicit PrefixStore(PrefixStoreOptions options) : options_(std::move(options)) {}

  /// Makes the session hold the longest known beginning of `prompt`, in memory or stored.
  PrefixRestore restore(Session& session, std::span<const TokenId> prompt);
  /// Keeps the whole blocks of `prompt` that the session holds.
  PrefixSave save(const Session& session, std::span<const TokenId> prompt);

  RecordTier& tier() const { return *options_.tier; }
  const PrefixStoreOptions& options() const { return options_; }
  /// Sums over the prompts so far.
  const PrefixRestore& restored() const { return restored_; }
  const PrefixSave& saved() const { return saved_; }

 private:
  Result<KvSpace> space(const Session& session) const;
  Status restore_blocks(Session& session, std::span<const TokenId> prompt, PrefixRestore& out);
  Result<size_t> restore_record(Session& session, std::span<const TokenId> prompt, const KvSpace& space,
                                const Digest& key, PrefixRestore& out);
  Status save_blocks(const Session& session, std::span<const TokenId> prompt, PrefixSave& out);

  PrefixStoreOptions options_;
  PrefixRestore restored_;
  PrefixSave saved_;
};

/// Raised when the bits of KV change with the program.
inline constexpr uint32_t kKvArithmeticVersion = 1;

/// Which of a model's rotations is in use (rope_for_context()): some have one for long contexts.
enum class RopeChoice : uint8_t { kOnly, kShort, kLong };
/// `context` as the model was opened with; 0: the trained one.
RopeChoice rope_choice(const ModelConfig& config, size_t context);
RopeChoice rope_choice(const LanguageModel& model);

/// KvSpace::identity: `model` is the digest of the model's files, of which all else about it follows.
Result<Digest> model_kv_identity(const Digest& model, RopeChoice rope, DigestFunction digest);

}  // namespace isthmus
