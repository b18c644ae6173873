#include "engine/prefix_store.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace isthmus {
namespace {

using PrefixClock = std::chrono::steady_clock;

double prefix_seconds_since(PrefixClock::time_point start) {
  return std::chrono::duration<double>(PrefixClock::now() - start).count();
}

size_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// Whole blocks of a prompt without its last token, whose logits will be wanted.
size_t usable_blocks(const KvSpace& space, std::span<const TokenId> prompt) {
  return (prompt.size() - 1) / kBlockKeys / space.unit() * space.unit();
}

/// What is given up may depend on the queries of the whole prompt, and what was read behind it on what was
/// given up.
Status check_policy(const Session& session) {
  if (session.eviction() == nullptr && !session.pruned()) return ok_status();
  return failed_precondition("with a policy that gives up keys prompts are read whole");
}

}  // namespace

RopeChoice rope_choice(const ModelConfig& config, size_t context) {
  if (config.rope_factors_long.empty() || config.rope_factors_short.empty()) return RopeChoice::kOnly;
  const size_t positions = context == 0 ? config.context : context;
  return positions > config.rope.original_context ? RopeChoice::kLong : RopeChoice::kShort;
}

RopeChoice rope_choice(const LanguageModel& model) {
  return rope_choice(model.config(), model.options().context);
}

Result<Digest> model_kv_identity(const Digest& model, RopeChoice rope, DigestFunction digest) {
  const std::string text = "isthmus model kv " + std::to_string(kKvArithmeticVersion) + " rope " +
                           std::to_string(static_cast<int>(rope)) + " " + hex_of(model);
  return digest(std::as_bytes(std::span(text)));
}

Result<KvSpace> PrefixStore::space(const Session& session) const {
  ISTHMUS_ASSIGN_OR_RETURN(const Digest salt, options_.digest(std::as_bytes(std::span(options_.salt))));
  const LanguageModel& model = session.model();
  ISTHMUS_ASSIGN_OR_RETURN(const Digest identity,
                           model_kv_identity(options_.model, rope_choice(model), options_.digest));
  KvSpace out = kv_space(session.kv(), model.prompt_compute(), identity, salt);
  if (out.unit() > kKvRecordBlocks) {
    return unsupported("stored prompts of KV that is coded " + std::to_string(out.residual) +
                       " tokens at a time; a record has " + std::to_string(kKvRecordBlocks * kBlockKeys));
  }
  return out;
}

PrefixRestore PrefixStore::restore(Session& session, std::span<const TokenId> prompt) {
  const auto start = PrefixClock::now();
  PrefixRestore out;
  out.memory_tokens = session.keep_common_prefix(prompt);
  const Status status = restore_blocks(session, prompt, out);
  if (!status.ok()) out.reason = status.message();
  out.memory_tokens = session.tokens().size() - out.stored_tokens;
  out.seconds = prefix_seconds_since(start);
  restored_.memory_tokens += out.memory_tokens;
  restored_.stored_tokens += out.stored_tokens;
  restored_.records += out.records;
  restored_.bytes += out.bytes;
  restored_.seconds += out.seconds;
  restored_.reason = out.reason;
  return out;
}

Status PrefixStore::restore_blocks(Session& session, std::span<const TokenId> prompt, PrefixRestore& out) {
  ISTHMUS_RETURN_IF_ERROR(check_policy(session));
  if (prompt.empty()) return ok_status();
  ISTHMUS_ASSIGN_OR_RETURN(const KvSpace wanted, space(session));
  const size_t blocks = usable_blocks(wanted, prompt);
  if (session.tokens().size() / kBlockKeys >= blocks) return ok_status();
  ISTHMUS_ASSIGN_OR_RETURN(const KvKeys keys,
                           kv_keys(wanted, prompt.first(blocks * kBlockKeys), options_.digest));
  size_t at = session.tokens().size() / kBlockKeys / wanted.unit() * wanted.unit();
  // Found by the last key of what is kept together: another text may share the first ones.
  const size_t last = wanted.unit() - 1;
  while (at < blocks && tier().holds(keys.blocks[at + last])) {
    // What is held beyond is coded together with what the record has.
    if (!wanted.coded.empty()) ISTHMUS_RETURN_IF_ERROR(session.truncate(at * kBlockKeys));
    ISTHMUS_ASSIGN_OR_RETURN(const size_t taken,
                             restore_record(session, prompt, wanted, keys.blocks[at + last], out));
    at += taken;
  }
  return ok_status();
}

/// Takes what follows the session's whole blocks out of the record with `key`, of a block there; returns how
/// many blocks that were, at least one.
Result<size_t> PrefixStore::restore_record(Session& session, std::span<const TokenId> prompt,
                                           const KvSpace& wanted, const Digest& key, PrefixRestore& out) {
  // The buffer of a record, before it is taken.
  ISTHMUS_ASSIGN_OR_RETURN(
      const Charge charge,
      session.ledger().charge(MemoryKind::kWork,
                              kv_space_block_bytes(wanted) * kKvRecordBlocks + kMaxRecordHead));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, tier().read(key));
  const size_t at = session.tokens().size() / kBlockKeys;
  const auto parsed = KvRecord::parse(bytes);
  Status status = parsed.status();
  if (status.ok()) status = parsed->check_space(wanted);
  const size_t blocks = usable_blocks(wanted, prompt);
  size_t known = 0;  // blocks of the record that are the prompt's
  if (status.ok()) {
    const size_t end = parsed->first_block() + parsed->matching_blocks(prompt.first(blocks * kBlockKeys));
    known = end / wanted.unit() * wanted.unit() - std::min(parsed->first_block(), end);
    if (parsed->first_block() > at || parsed->first_block() + known <= at) {
      status = corrupt("the stored tokens are not those of the prompt");
    }
  }
  if (!status.ok()) {
    tier().refuse(key);
    return status;
  }
  const size_t from = at - parsed->first_block();
  // Beyond the last whole block in memory may be more tokens: the record has them, too.
  ISTHMUS_RETURN_IF_ERROR(session.append_stored(*parsed, from, known - from));
  out.stored_tokens += (known - from) * kBlockKeys;
  out.bytes += bytes.size();
  ++out.records;
  return known - from;
}

PrefixSave PrefixStore::save(const Session& session, std::span<const TokenId> prompt) {
  const auto start = PrefixClock::now();
  PrefixSave out;
  const Status status = save_blocks(session, prompt, out);
  if (!status.ok()) out.reason = status.message();
  out.seconds = prefix_seconds_since(start);
  saved_.tokens += out.tokens;
  saved_.records += out.records;
  saved_.bytes += out.bytes;
  saved_.seconds += out.seconds;
  saved_.reason = out.reason;
  return out;
}

Status PrefixStore::save_blocks(const Session& session, std::span<const TokenId> prompt, PrefixSave& out) {
  ISTHMUS_RETURN_IF_ERROR(check_policy(session));
  const auto text = prompt.first(common_tokens(prompt, session.tokens()));
  ISTHMUS_ASSIGN_OR_RETURN(const KvSpace wanted, space(session));
  const size_t blocks = kv_blocks_as(session.kv(), wanted, text.size() / kBlockKeys);
  ISTHMUS_ASSIGN_OR_RETURN(const KvKeys keys,
                           kv_keys(wanted, text.first(blocks * kBlockKeys), options_.digest));
  const size_t unit = wanted.unit();
  for (size_t at = 0; at < blocks;) {
    size_t end = at;
    while (end < blocks && end - at + unit <= kKvRecordBlocks && !tier().holds(keys.blocks[end + unit - 1])) {
      end += unit;
    }
    if (end == at) {
      at += unit;
      continue;
    }
    ISTHMUS_ASSIGN_OR_RETURN(
        const std::vector<std::byte> record,
        encode_kv_record(session.kv(), wanted, keys, text, at, end - at, options_.label));
    ISTHMUS_RETURN_IF_ERROR(tier().write(record));
    out.tokens += (end - at) * kBlockKeys;
    out.bytes += record.size();
    ++out.records;
    at = end;
  }
  return ok_status();
}

}  // namespace isthmus
