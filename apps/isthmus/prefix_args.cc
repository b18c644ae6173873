#include "apps/isthmus/prefix_args.h"

#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "format/gguf.h"
#include "os/terminal.h"
#include "store/hash_memory.h"
#include "store/sha256.h"

namespace isthmus::cli {

void add_prefix_args(CLI::App& app, PrefixArgs& args) {
  app.add_flag("--prefix-cache", args.on,
               "keep the KV of prompts on disk, and do not read again what is there");
  app.add_option("--prefix-cache-size", args.size,
                 "most bytes of all stored KV, with --prefix-cache; what was used longest ago goes")
      ->type_name("SIZE")
      ->capture_default_str();
}

std::string model_label(const std::string& model) { return model.substr(model.rfind('/') + 1); }

Result<Digest> model_digest(const std::string& path, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  StopPolicy stop;
  stop.token = context.stop;
  ProgressBar bar(context.json || !os::is_terminal(os::Stream::kError));
  std::string all;
  for (const std::string& part : file.paths()) {
    const auto digest =
        file_digest(part, stop, [&bar](uint64_t done, uint64_t total) { bar.show("hashing", done, total); });
    bar.finish();
    ISTHMUS_RETURN_IF_ERROR(digest.status());
    all += digest->sha256;
  }
  if (file.paths().size() > 1) return sha256_digest(std::as_bytes(std::span(all)));
  const auto digest = digest_from_hex(all);
  if (!digest) return internal_error("a digest of a model is not one");
  return *digest;
}

Status PrefixCache::open_tier(uint64_t quota, const ModelArgs& model, const std::string& path,
                              const Context& context) {
  PrefixStoreOptions options;
  options.digest = sha256_digest;
  ISTHMUS_ASSIGN_OR_RETURN(options.model, model_digest(path, context));
  options.label = model_label(model.model);
  ISTHMUS_ASSIGN_OR_RETURN(const std::string folder, standard_kv_folder());
  KvTierOptions tier;
  tier.quota = quota;
  ISTHMUS_ASSIGN_OR_RETURN(tier_, KvTier::open(folder, tier));
  options.tier = tier_.get();
  store_ = std::make_unique<PrefixStore>(std::move(options));
  return ok_status();
}

Result<PrefixCache> PrefixCache::open(const CLI::App& app, const PrefixArgs& args, const ModelArgs& model,
                                      const Context& context) {
  PrefixCache out;
  if (!args.on && app.count("--prefix-cache-size") > 0) {
    return invalid_argument("--prefix-cache-size needs --prefix-cache");
  }
  if (!args.on) return out;
  const auto quota = parse_bytes(args.size);
  if (!quota.ok()) return quota.status().with_context("--prefix-cache-size");
  out.wanted_ = true;
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, model_path(model.model, model.store, context));
  const Status status = out.open_tier(*quota, model, path, context);
  if (status.code() == Code::kCancelled) return status;
  if (!status.ok()) {
    out.reason_ = status.message();
    say("[the prefix cache is off: {}]\n", printable(out.reason_));
  }
  return out;
}

void PrefixCache::save(const Session& session, std::span<const TokenId> prompt) {
  if (store_ == nullptr) return;
  const PrefixSave saved = store_->save(session, prompt);
  if (saved.reason.empty() || told_) return;
  told_ = true;
  say("[the prompt is not kept in the prefix cache: {}]\n", printable(saved.reason));
}

nlohmann::ordered_json PrefixCache::json() {
  if (!wanted_) return {{"state", "off"}};
  if (store_ == nullptr) return {{"state", "failed"}, {"reason", reason_}};
  const KvTierFigures figures = tier_->figures();
  const PrefixRestore& restored = store_->restored();
  const PrefixSave& saved = store_->saved();
  nlohmann::ordered_json out = {{"state", figures.read_only.empty() ? "on" : "read_only"}};
  const std::string& reason = !figures.read_only.empty() ? figures.read_only
                              : !saved.reason.empty()    ? saved.reason
                                                         : restored.reason;
  if (!reason.empty()) out["reason"] = reason;
  out["restored_tokens"] = restored.stored_tokens;
  out["restored_bytes"] = restored.bytes;
  out["restore_ms"] = restored.seconds * 1e3;
  out["saved_tokens"] = saved.tokens;
  out["saved_bytes"] = saved.bytes;
  out["save_ms"] = saved.seconds * 1e3;
  out["damaged_records"] = figures.damaged + figures.refused;
  out["records"] = figures.records;
  out["bytes"] = figures.bytes;
  return out;
}

}  // namespace isthmus::cli
