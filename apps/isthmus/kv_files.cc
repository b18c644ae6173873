#include "apps/isthmus/kv_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "apps/isthmus/figures.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/prefix_args.h"
#include "engine/chat.h"
#include "kv/kv_file.h"
#include "os/file.h"
#include "store/sha256.h"

namespace isthmus::cli {
namespace {

constexpr size_t kMaxKvFileBytes = size_t{64} << 30;

Result<std::vector<TokenId>> chat_tokens(const LanguageModel& model, const std::string& system,
                                         const std::string& user) {
  ChatRequest chat;
  if (!system.empty()) chat.messages.push_back({{"role", "system"}, {"content", system}});
  chat.messages.push_back({{"role", "user"}, {"content", user}});
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  chat.now = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return encode_chat(model, chat);
}

/// The tokens of the text as `run` would read it; of a system message those that do not depend on what the
/// user asks.
Result<std::vector<TokenId>> prompt_tokens(const LanguageModel& model, const KvArgs& args,
                                           const std::string& text) {
  if (args.raw) return model.tokenizer().encode(text, Specials::kParse, true);
  if (!args.system) return chat_tokens(model, "", text);
  ISTHMUS_ASSIGN_OR_RETURN(std::vector<TokenId> one, chat_tokens(model, text, "a"));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<TokenId> two, chat_tokens(model, text, "Why?"));
  one.erase(std::mismatch(one.begin(), one.end(), two.begin(), two.end()).first, one.end());
  return one;
}

struct Exported {
  size_t tokens = 0;
  size_t prompt_tokens = 0;
  uint64_t bytes = 0;
  uint64_t block_bytes = 0;
};

Result<KvSpace> space_of(const Session& session, const Digest& model) {
  const LanguageModel& of = session.model();
  ISTHMUS_ASSIGN_OR_RETURN(const Digest identity, model_kv_identity(model, rope_choice(of), sha256_digest));
  ISTHMUS_ASSIGN_OR_RETURN(const Digest salt, sha256_digest({}));
  return kv_space(session.kv(), of.prompt_compute(), identity, salt);
}

Result<Exported> write_kv_file(const Session& session, const Digest& model, const KvArgs& args) {
  ISTHMUS_ASSIGN_OR_RETURN(const KvSpace space, space_of(session, model));
  const size_t blocks = kv_blocks_as(session.kv(), space, session.tokens().size() / kBlockKeys);
  if (blocks == 0) {
    return invalid_argument(fmt::format("the text has {} tokens; a KV file holds whole blocks of {}",
                                        session.tokens().size(), space.unit() * kBlockKeys));
  }
  ISTHMUS_ASSIGN_OR_RETURN(const KvKeys keys, kv_keys(space, session.tokens(), sha256_digest));
  std::vector<std::vector<std::byte>> records;
  uint64_t bytes = 0;
  for (size_t at = 0; at < blocks; at += kKvRecordBlocks) {
    ISTHMUS_ASSIGN_OR_RETURN(
        auto record, encode_kv_record(session.kv(), space, keys, session.tokens(), at,
                                      std::min(kKvRecordBlocks, blocks - at), model_label(args.model.model)));
    bytes += record.size();
    records.push_back(std::move(record));
  }
  ISTHMUS_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(real_file_system(), args.out));
  ISTHMUS_RETURN_IF_ERROR(file.append(encode_kv_file_head(records.size(), bytes)));
  for (const auto& record : records) ISTHMUS_RETURN_IF_ERROR(file.append(record));
  ISTHMUS_RETURN_IF_ERROR(file.publish());
  return Exported{blocks * kBlockKeys, session.tokens().size(), bytes + kKvFileHeadBytes,
                  kv_space_block_bytes(space)};
}

/// kFailedPrecondition unless the record is of this model and of no app.
Status check_origin(const KvRecord& record, const Digest& model) {
  ISTHMUS_ASSIGN_OR_RETURN(const Digest salt, sha256_digest({}));
  bool same = false;
  for (const RopeChoice rope : {RopeChoice::kOnly, RopeChoice::kShort, RopeChoice::kLong}) {
    ISTHMUS_ASSIGN_OR_RETURN(const Digest identity, model_kv_identity(model, rope, sha256_digest));
    same = same || identity == record.head().identity;
  }
  if (!same) {
    return failed_precondition(
        "it was made by another model, or by a version of isthmus that computes KV in "
        "another way (its label: '" +
        printable(record.head().label) + "')");
  }
  if (record.space().salt != salt) return failed_precondition("it belongs to an app");
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<KvTier>> open_kv_tier(const KvArgs& args) {
  KvTierOptions options;
  ISTHMUS_ASSIGN_OR_RETURN(options.quota, parse_bytes(args.size));
  ISTHMUS_ASSIGN_OR_RETURN(const std::string folder, standard_kv_folder());
  return KvTier::open(folder, options);
}

Status export_kv(KvArgs args, const Context& context) {
  if (args.items.size() != 1) return invalid_argument("kv export takes one MODEL");
  if (args.prompt_file.empty() || args.out.empty()) {
    return invalid_argument("kv export needs --prompt-file and --output");
  }
  if (args.raw && args.system)
    return invalid_argument("--system needs the chat template that --raw leaves out");
  if (real_file_system().exists(args.out)) return invalid_argument("'" + args.out + "' exists already");
  args.model.model = args.items.front();
  ISTHMUS_ASSIGN_OR_RETURN(std::string text, read_input(args.prompt_file));
  if (!text.empty() && text.back() == '\n') text.pop_back();  // as `run` does
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, model_path(args.model.model, args.model.store, context));
  ISTHMUS_ASSIGN_OR_RETURN(const Digest digest, model_digest(path, context));
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  if (options.eviction.on()) return invalid_argument("--kv-policy: a KV file holds all keys");
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(args.model, std::move(options), context));
  ISTHMUS_ASSIGN_OR_RETURN(const auto session, Session::create(model));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, prompt_tokens(*model, args, text));
  StopPolicy stop;
  stop.token = context.stop;
  ISTHMUS_RETURN_IF_ERROR(session->append(tokens, Purpose::kPrompt, stop));
  ISTHMUS_ASSIGN_OR_RETURN(const Exported done, write_kv_file(*session, digest, args));
  if (context.json) {
    print_json({{"file", args.out},
                {"prompt_tokens", done.prompt_tokens},
                {"tokens", done.tokens},
                {"bytes", done.bytes},
                {"kv_bytes", done.block_bytes * (done.tokens / kBlockKeys)}});
  } else {
    fmt::print("{}: {} of {} tokens, {}\n", printable(args.out), done.tokens, done.prompt_tokens,
               human_bytes(done.bytes));
  }
  return ok_status();
}

Status import_kv(const KvArgs& args, const Context& context) {
  if (args.items.size() != 2) return invalid_argument("kv import takes a MODEL and a FILE");
  const std::string& path = args.items[1];
  ISTHMUS_ASSIGN_OR_RETURN(const std::string model, model_path(args.items[0], args.model.store, context));
  ISTHMUS_ASSIGN_OR_RETURN(const Digest digest, model_digest(model, context));
  const auto start = SteadyClock::now();
  ISTHMUS_ASSIGN_OR_RETURN(const std::string file, real_file_system().read(path, kMaxKvFileBytes));
  const auto parsed = parse_kv_file(std::as_bytes(std::span(file)), sha256_digest);
  if (!parsed.ok()) return parsed.status().with_context(path);
  ISTHMUS_RETURN_IF_ERROR(check_origin(parsed->front().record, digest).with_context(path));
  ISTHMUS_ASSIGN_OR_RETURN(const auto tier, open_kv_tier(args));
  size_t tokens = 0;
  for (const KvFileRecord& item : *parsed) {
    ISTHMUS_RETURN_IF_ERROR(tier->write(item.bytes));
    tokens += item.record.tokens().size();
  }
  const double seconds = seconds_since(start);
  if (context.json) {
    print_json({{"file", path}, {"tokens", tokens}, {"bytes", file.size()}, {"ms", seconds * 1e3}});
  } else {
    fmt::print("{} tokens of {} taken in, {} in {:.0f} ms\n", tokens, printable(args.items[0]),
               human_bytes(file.size()), seconds * 1e3);
  }
  return ok_status();
}

}  // namespace isthmus::cli
