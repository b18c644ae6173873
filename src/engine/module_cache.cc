#include "engine/module_cache.h"

#include <algorithm>
#include <chrono>

#include "engine/prefix_store.h"

namespace isthmus {
namespace {

using ModuleClock = std::chrono::steady_clock;

/// Stands for the schema's text while a chat template is rendered: words that no template changes.
constexpr const char* kSchemaText = "IsthmusSchemaText";

/// Fills what a last block lacks.
constexpr TokenId kNoToken = -1;

size_t module_blocks(size_t tokens) { return (tokens + kBlockKeys - 1) / kBlockKeys; }

ChatRequest schema_request(SchemaRole role) {
  ChatRequest out;
  if (role == SchemaRole::kSystem) {
    out.messages.push_back({{"role", "system"}, {"content", kSchemaText}});
    out.messages.push_back({{"role", "user"}, {"content", "?"}});
  } else {
    out.messages.push_back({{"role", "user"}, {"content", std::string(kSchemaText) + "?"}});
  }
  return out;
}

template <class T>
void append_plain(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

Result<std::unique_ptr<ModuleCache>> ModuleCache::create(std::shared_ptr<LanguageModel> model,
                                                         const PromptSchema& schema,
                                                         ModuleCacheOptions options) {
  if (model->key_encoding() != KeyEncoding::kAbsolute) {
    return unsupported("prompt modules need keys that are rotated by absolute positions");
  }
  std::unique_ptr<ModuleCache> out(new ModuleCache(std::move(model), std::move(options)));
  ISTHMUS_ASSIGN_OR_RETURN(std::vector<TokenId> lead, out->lead(schema.role));
  const size_t most = std::max(out->model_->context(), out->model_->config().context);
  ISTHMUS_ASSIGN_OR_RETURN(
      out->layout_,
      SchemaLayout::create(
          schema, std::move(lead), [&out](std::string_view text) { return out->encode(text); }, most));
  ISTHMUS_RETURN_IF_ERROR(out->make_pool());
  return out;
}

/// What the model reads before the schema's text.
Result<std::vector<TokenId>> ModuleCache::lead(SchemaRole role) {
  role_ = role;
  const Tokenizer& tokenizer = model_->tokenizer();
  std::vector<TokenId> out;
  if (role != SchemaRole::kRaw) {
    ISTHMUS_ASSIGN_OR_RETURN(const RenderedChat rendered, render_chat(*model_, schema_request(role)));
    const size_t at = rendered.text.find(kSchemaText);
    if (at == std::string::npos)
      return unsupported("the chat template does not leave the schema's text as it is");
    out = tokenizer.encode(std::string_view(rendered.text).substr(0, at), Specials::kParse, false);
    known_text_ = rendered.text.substr(0, at) + kSchemaText;
  }
  if (tokenizer.adds_bos() && tokenizer.bos() && (out.empty() || out.front() != *tokenizer.bos())) {
    out.insert(out.begin(), *tokenizer.bos());
  }
  return out;
}

/// A schema without a role is the app's own text, special tokens included, as with `run --raw`.
std::vector<TokenId> ModuleCache::encode(std::string_view text) const {
  const Specials specials = role_ == SchemaRole::kRaw ? Specials::kParse : Specials::kAsText;
  return model_->tokenizer().encode(text, specials, false);
}

Status ModuleCache::make_pool() {
  const KvSequence like = model_->make_sequence();
  BlockPoolConfig config = like.pool()->config();
  config.coded.clear();
  size_t blocks = 0;
  for (const auto& run : layout_.runs()) blocks += module_blocks(run.tokens.size());
  config.blocks = std::max<size_t>(blocks, 1) * like.layers() * like.kv_heads();
  ISTHMUS_ASSIGN_OR_RETURN(pool_, BlockPool::create(config, model_->ledger()));
  kv_.resize(layout_.runs().size());
  return ok_status();
}

Result<ComposedPrompt> ModuleCache::choose(const SchemaPrompt& prompt) const {
  ComposedPrompt out;
  ISTHMUS_ASSIGN_OR_RETURN(out.parts,
                           layout_.choose(prompt, [this](std::string_view text) { return encode(text); }));
  for (const auto& part : out.parts) {
    const auto& tokens = part.run == SchemaLayout::kNone ? part.argument : layout_.runs()[part.run].tokens;
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
  }
  return out;
}

std::string ModuleCache::first_message(const std::string& question) const {
  return role_ == SchemaRole::kUser ? kSchemaText + question : question;
}

void ModuleCache::begin(const ComposedPrompt& composed, Conversation& conversation) const {
  conversation.clear();
  if (role_ == SchemaRole::kSystem) {
    conversation.messages().push_back({{"role", "system"}, {"content", kSchemaText}});
  }
  conversation.begin_with(known_text_, composed.tokens);
}

Status ModuleCache::finish(const std::string& question, int64_t now, ComposedPrompt& composed) const {
  std::vector<TokenId> all = composed.tokens;
  if (has_template()) {
    Conversation conversation(*model_);
    begin(composed, conversation);
    conversation.request().now = now;
    conversation.messages().push_back({{"role", "user"}, {"content", first_message(question)}});
    ISTHMUS_ASSIGN_OR_RETURN(all, conversation.prompt());
  } else {
    const auto ids = encode(question);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  composed.tail = all.size() - composed.tokens.size();
  composed.tokens = std::move(all);
  return ok_status();
}

/// Whether a run sees everything that can stand before it: then its KV is that of any prompt.
bool ModuleCache::sees_all(size_t run) const { return layout_.runs()[run].position == 0; }

/// Where a run stands while it is read: where the schema has it, or right behind what it sees.
size_t ModuleCache::own_position(size_t run) const {
  if (options_.places == ModulePlaces::kSchema) return layout_.runs()[run].position;
  size_t n = 0;
  for (const size_t other : layout_.seen(run, options_.view)) n += layout_.runs()[other].tokens.size();
  return n;
}

TextPart ModuleCache::part_at(size_t run, size_t position) const {
  const Exactness exactness = sees_all(run) ? Exactness::kExact : Exactness::kComposed;
  const auto turn = static_cast<int32_t>(position) - static_cast<int32_t>(own_position(run));
  return {layout_.runs()[run].tokens, position, &kv_[run], exactness, turn};
}

std::vector<TextPart> ModuleCache::parts(const ComposedPrompt& composed) const {
  const bool packed = options_.places == ModulePlaces::kPacked;
  std::vector<TextPart> out;
  size_t next = 0;
  for (const auto& part : composed.parts) {
    const size_t position = packed ? next : part.position;
    out.push_back(part.run == SchemaLayout::kNone ? TextPart{part.argument, position}
                                                  : part_at(part.run, position));
    next = position + out.back().tokens.size();
  }
  const auto tail = std::span(composed.tokens).last(composed.tail);
  out.push_back({tail, packed ? next : layout_.length()});
  return out;
}

Status ModuleCache::prepare(const ComposedPrompt& composed, Session& session, const StopPolicy& stop) {
  std::vector<size_t> wanted;
  for (const auto& part : composed.parts) {
    if (part.run != SchemaLayout::kNone) wanted.push_back(part.run);
  }
  return prepare_timed(wanted, session, stop);
}

Status ModuleCache::prepare_all(Session& session, const StopPolicy& stop) {
  std::vector<size_t> wanted(layout_.runs().size());
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = i;
  return prepare_timed(wanted, session, stop);
}

Status ModuleCache::prepare_runs(const std::vector<size_t>& wanted, Session& session,
                                 const StopPolicy& stop) {
  for (const size_t run : wanted) {
    if (kv_[run].length() > 0) continue;
    if (options_.tier != nullptr) {
      const Status stored = restore_run(run);
      if (stored.ok()) continue;
      if (stored.code() != Code::kNotFound) figures_.reason = stored.message();
    }
    ISTHMUS_RETURN_IF_ERROR(compute_run(run, session, stop));
  }
  return ok_status();
}

Status ModuleCache::prepare_timed(const std::vector<size_t>& wanted, Session& session,
                                  const StopPolicy& stop) {
  const auto start = ModuleClock::now();
  Status status = prepare_runs(wanted, session, stop);
  figures_.seconds += std::chrono::duration<double>(ModuleClock::now() - start).count();
  return status;
}

/// Reads a run behind those that it sees, which are made ready first.
Status ModuleCache::compute_run(size_t run, Session& session, const StopPolicy& stop) {
  const auto& it = layout_.runs()[run];
  const std::vector<size_t> before = layout_.seen(run, options_.view);
  ISTHMUS_RETURN_IF_ERROR(prepare_runs(before, session, stop));
  std::vector<TextPart> parts;
  for (const size_t other : before) {
    const bool packed = options_.places == ModulePlaces::kPacked;
    const size_t next = parts.empty() ? 0 : parts.back().position + parts.back().tokens.size();
    parts.push_back(part_at(other, packed ? next : layout_.runs()[other].position));
  }
  parts.push_back({it.tokens, own_position(run)});
  ISTHMUS_RETURN_IF_ERROR(session.compose(parts, {}, stop, false).status());
  KvSequence made(pool_, session.kv().layers(), session.kv().kv_heads());
  const size_t from = session.kv().length() - it.tokens.size();
  const Exactness exactness = sees_all(run) ? Exactness::kExact : Exactness::kComposed;
  ISTHMUS_RETURN_IF_ERROR(made.append_copy(session.kv(), from, it.tokens.size(), exactness));
  ISTHMUS_RETURN_IF_ERROR(session.truncate(0));
  ISTHMUS_RETURN_IF_ERROR(made.append_zeros(module_blocks(it.tokens.size()) * kBlockKeys - it.tokens.size()));
  kv_[run] = std::move(made);
  figures_.computed_tokens += it.tokens.size();
  figures_.tokens += it.tokens.size();
  figures_.bytes += kv_[run].bytes();
  ++figures_.runs;
  if (options_.tier == nullptr) return ok_status();
  const Status saved = save_run(run);
  if (!saved.ok()) figures_.reason = saved.message();
  return ok_status();
}

std::vector<TokenId> ModuleCache::padded_tokens(size_t run) const {
  std::vector<TokenId> out = layout_.runs()[run].tokens;
  out.resize(module_blocks(out.size()) * kBlockKeys, kNoToken);
  return out;
}

/// The model, and all text that a run's KV depends on, where it stands.
Result<KvSpace> ModuleCache::space(size_t run) const {
  ISTHMUS_ASSIGN_OR_RETURN(const Digest identity,
                           model_kv_identity(options_.model, rope_choice(*model_), options_.digest));
  std::string what = "isthmus module 1 " + hex_of(identity);
  std::vector<size_t> texts = layout_.seen(run, options_.view);
  texts.push_back(run);
  for (const size_t text : texts) {
    const auto& it = layout_.runs()[text];
    append_plain(what, uint64_t{own_position(text)});
    append_plain(what, uint64_t{it.tokens.size()});
    // What those in turn saw follows from the view.
    append_plain(what, static_cast<uint64_t>(options_.view));
    append_plain(what, static_cast<uint64_t>(options_.places));
    for (const TokenId token : it.tokens) append_plain(what, token);
  }
  const auto bytes = std::as_bytes(std::span(what));
  ISTHMUS_ASSIGN_OR_RETURN(const Digest all, options_.digest(bytes));
  ISTHMUS_ASSIGN_OR_RETURN(const Digest salt, options_.digest(std::as_bytes(std::span(options_.salt))));
  const KvSequence like(pool_, model_->config().layers, model_->config().n_kv_heads);
  KvSpace out = kv_space(like, model_->prompt_compute(), all, salt);
  if (!sees_all(run)) out.exactness = Exactness::kComposed;
  return out;
}

Status ModuleCache::save_run(size_t run) {
  ISTHMUS_ASSIGN_OR_RETURN(const KvSpace wanted, space(run));
  const std::vector<TokenId> tokens = padded_tokens(run);
  ISTHMUS_ASSIGN_OR_RETURN(const KvKeys keys, kv_keys(wanted, tokens, options_.digest));
  for (size_t at = 0; at < keys.blocks.size(); at += kKvRecordBlocks) {
    const size_t count = std::min(kKvRecordBlocks, keys.blocks.size() - at);
    ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::byte> record,
                             encode_kv_record(kv_[run], wanted, keys, tokens, at, count, options_.label));
    ISTHMUS_RETURN_IF_ERROR(options_.tier->write(record));
  }
  figures_.saved_tokens += layout_.runs()[run].tokens.size();
  return ok_status();
}

/// kNotFound when the tier does not have it all.
Status ModuleCache::restore_run(size_t run) {
  ISTHMUS_ASSIGN_OR_RETURN(const KvSpace wanted, space(run));
  const std::vector<TokenId> tokens = padded_tokens(run);
  ISTHMUS_ASSIGN_OR_RETURN(const KvKeys keys, kv_keys(wanted, tokens, options_.digest));
  if (!options_.tier->holds(keys.blocks.back())) return not_found("the module is not stored");
  KvSequence made(pool_, model_->config().layers, model_->config().n_kv_heads);
  while (made.length() < tokens.size()) {
    const size_t at = made.length() / kBlockKeys;
    ISTHMUS_ASSIGN_OR_RETURN(
        const Charge charge,
        model_->ledger().charge(MemoryKind::kWork,
                                kv_space_block_bytes(wanted) * kKvRecordBlocks + kMaxRecordHead));
    ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, options_.tier->read(keys.blocks[at]));
    const auto record = KvRecord::parse(bytes);
    Status status = record.status();
    if (status.ok()) status = record->check_space(wanted);
    if (status.ok() && (record->first_block() != at || record->matching_blocks(tokens) != record->blocks())) {
      status = corrupt("the stored tokens are not those of the module");
    }
    if (!status.ok()) {
      options_.tier->refuse(keys.blocks[at]);
      return status;
    }
    ISTHMUS_RETURN_IF_ERROR(record->append_to(made, 0, record->blocks()));
  }
  kv_[run] = std::move(made);
  const size_t n = layout_.runs()[run].tokens.size();
  figures_.stored_tokens += n;
  figures_.tokens += n;
  figures_.bytes += kv_[run].bytes();
  ++figures_.runs;
  return ok_status();
}

}  // namespace isthmus
