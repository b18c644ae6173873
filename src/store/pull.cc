#include "store/pull.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "base/checked.h"
#include "base/suggest.h"
#include "store/fetch.h"
#include "store/partial_file.h"
#include "store/sha256.h"

namespace isthmus {
namespace {

/// What is to be pulled, after all questions of naming.
struct Plan {
  std::string name;
  std::optional<uint64_t> size;
  std::string sha256;  // empty: not known
  Licence licence;
  std::vector<ModelSource> sources;
};

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const size_t n = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text.data(), n);
}

Licence unknown_licence(const ModelSource& source, const EnvLookup& env) {
  Licence out;
  out.id = "unknown";
  out.name = "not known to Isthmus: see where the model comes from";
  if (const auto* hub = std::get_if<HubFile>(&source.parts.front())) {
    const Result<std::string> url = hub_url(*hub, env);
    if (url.ok()) out.url = url->substr(0, url->find("/resolve/"));
  }
  return out;
}

/// "model-00001-of-00003.gguf": one file of a model that is split over several.
bool is_split_file(std::string name) {
  if (!name.ends_with(".gguf")) return false;
  name.resize(name.size() - 5);
  const size_t of = name.rfind("-of-");
  return of != std::string::npos && of >= 6 && name.size() == of + 9 && name[of - 6] == '-';
}

Result<Plan> plan_source(const std::string& reference, const PullOptions& options) {
  Plan plan;
  ISTHMUS_ASSIGN_OR_RETURN(ModelSource source, parse_source(reference));
  ISTHMUS_ASSIGN_OR_RETURN(
      plan.name, options.name.empty() ? name_from_source(source) : Result<std::string>(options.name));
  if (is_split_file(plan.name + ".gguf")) {
    return unsupported(
        "'" + reference +
        "' is one file of a model that is split over several, and the store keeps one file per "
        "model; bring all of its files into one folder and use the path of the first");
  }
  if (const auto* local = std::get_if<LocalFile>(&source.parts.front())) {
    ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, file_info(local->path));
    if (!info.is_regular) return invalid_argument("'" + local->path + "' is not a regular file");
    plan.size = info.size;
  }
  plan.sha256 = options.sha256;
  plan.licence = unknown_licence(source, options.env);
  plan.sources.push_back(std::move(source));
  return plan;
}

Plan plan_entry(const CatalogueEntry& entry, const PullOptions& options) {
  Plan plan;
  plan.name = options.name.empty() ? entry.name : options.name;
  plan.size = entry.size;
  plan.sha256 = entry.sha256;
  plan.licence = entry.licence;
  plan.sources = entry.sources;
  return plan;
}

Status unknown_name(const Catalogue& catalogue, const std::string& reference) {
  return not_found("no model '" + printable(reference, 200) + "' in the catalogue" +
                   did_you_mean(reference, catalogue.names()));
}

Result<Plan> make_plan(const Catalogue& catalogue, const std::string& reference, const PullOptions& options) {
  if (!options.name.empty() && !is_model_name(options.name)) {
    return invalid_argument("'" + printable(options.name, 200) + "' is not a model name");
  }
  if (!options.sha256.empty() && !is_sha256(options.sha256)) {
    return invalid_argument("a SHA-256 is 64 lower-case hex digits");
  }
  if (const CatalogueEntry* entry = catalogue.find(reference)) return plan_entry(*entry, options);
  const bool is_path = reference.find('/') != std::string::npos || reference.ends_with(".gguf");
  if (has_source_scheme(reference) || is_path || file_info(reference).ok())
    return plan_source(reference, options);
  return unknown_name(catalogue, reference);
}

class Puller {
 public:
  Puller(ModelStore& store, const PullOptions& options, Plan plan)
      : store_(store), options_(options), plan_(std::move(plan)) {
    key_ = plan_.sha256.empty() ? sha256_of(plan_.sources.front().text) : plan_.sha256;
  }

  Result<PullOutcome> run();

 private:
  /// The outcome when there is nothing to fetch.
  Result<std::optional<PullOutcome>> already_here();
  Status ask_licence();
  Status check_space(const ModelSource& source, uint64_t have);
  Result<PullOutcome> fetch_from(const ModelSource& source);
  Result<PullOutcome> check_and_publish(PartialFile& file, const ModelSource& source);
  Status check_content(PartialFile& file, std::string& digest);
  Result<PullOutcome> record(const std::string& sha256, uint64_t size, const std::string& source);
  void report(PullPhase phase, uint64_t done, const ModelSource* source, size_t part);
  void notice(const std::string& sentence) {
    if (options_.notice) options_.notice(sentence);
  }

  ModelStore& store_;
  const PullOptions& options_;
  Plan plan_;
  std::string key_;
};

void Puller::report(PullPhase phase, uint64_t done, const ModelSource* source, size_t part) {
  if (!options_.progress) return;
  PullProgress progress;
  progress.phase = phase;
  progress.done = done;
  progress.total = plan_.size.value_or(0);
  if (source != nullptr) {
    progress.part = part + 1;
    progress.parts = source->parts.size();
    progress.source = source->text;
  }
  options_.progress(progress);
}

Result<std::optional<PullOutcome>> Puller::already_here() {
  using Here = std::optional<PullOutcome>;
  if (options_.again) return Here();
  const Result<StoredModel> found = store_.find(plan_.name);
  if (found.ok() && found->state.ok()) {
    const Manifest& manifest = found->manifest;
    const bool same = plan_.sha256.empty() ? manifest.source == plan_.sources.front().text
                                           : manifest.sha256 == plan_.sha256;
    if (same) return Here(PullOutcome{manifest, found->path, true});
    if (plan_.sources.size() == 1 && plan_.licence.id == "unknown") {
      return failed_precondition("the name '" + plan_.name + "' is taken by " + manifest.source +
                                 "; give another name, or remove that model first");
    }
  }
  return Here();
}

Status Puller::ask_licence() {
  if (options_.show_licence) options_.show_licence(plan_.licence);
  if (!plan_.licence.must_accept || options_.accept_licence) return ok_status();
  if (options_.ask_licence && options_.ask_licence(plan_.licence)) return ok_status();
  return failed_precondition("'" + plan_.name +
                             "' comes under terms that you have to accept first (--accept-licence): " +
                             plan_.licence.name + ", " + plan_.licence.url);
}

Status Puller::check_space(const ModelSource& source, uint64_t have) {
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t free, store_.partial().free_bytes());
  const uint64_t size = plan_.size.value_or(0);
  const uint64_t scratch = scratch_bytes(source, size);
  const uint64_t needed = checked_add(size - std::min(size, have), scratch).value_or(UINT64_MAX);
  if (needed <= free) return ok_status();
  return resource_exhausted("pulling '" + plan_.name + "' needs " + std::to_string(needed) + " bytes, and " +
                            std::to_string(free) + " are free in " + store_.path());
}

Result<PullOutcome> Puller::record(const std::string& sha256, uint64_t size, const std::string& source) {
  Manifest manifest;
  manifest.name = plan_.name;
  manifest.sha256 = sha256;
  manifest.size = size;
  manifest.source = source;
  manifest.licence = plan_.licence;
  manifest.licence_accepted = plan_.licence.must_accept;
  manifest.pulled_at = utc_now();
  ISTHMUS_RETURN_IF_ERROR(store_.put(manifest));
  return PullOutcome{manifest, store_.blob_path(sha256), false};
}

/// Size, digest and magic are right; `digest` is the digest found.
Status Puller::check_content(PartialFile& file, std::string& digest) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string magic, file.head(4));
  ISTHMUS_ASSIGN_OR_RETURN(digest, file.finish_digest());
  if (plan_.size && file.size() != *plan_.size) {
    return corrupt("the model has " + std::to_string(file.size()) + " bytes, expected " +
                   std::to_string(*plan_.size));
  }
  const std::string& expected = plan_.sha256.empty() ? file.linked_sha256() : plan_.sha256;
  if (!expected.empty() && digest != expected) {
    return corrupt("the SHA-256 of the model is " + digest + ", expected " + expected);
  }
  if (magic != "GGUF") return corrupt("what came is not a GGUF file");
  return ok_status();
}

Result<PullOutcome> Puller::check_and_publish(PartialFile& file, const ModelSource& source) {
  const uint64_t size = file.size();
  std::string digest;
  if (Status good = check_content(file, digest); !good.ok()) {
    ISTHMUS_RETURN_IF_ERROR(file.drop());
    return good;
  }
  report(PullPhase::kPublishing, size, &source, source.parts.size() - 1);
  ISTHMUS_ASSIGN_OR_RETURN(const FolderLock held, store_.lock(options_.stop));
  ISTHMUS_RETURN_IF_ERROR(file.publish(store_.blobs(), digest + ".gguf"));
  return record(digest, size, source.text);
}

Result<PullOutcome> Puller::fetch_from(const ModelSource& source) {
  const bool digest_known = !plan_.sha256.empty();
  uint64_t read = 0;
  ISTHMUS_ASSIGN_OR_RETURN(
      const auto file,
      PartialFile::open(store_.partial(), key_, source.text, digest_known, options_.stop, [&](uint64_t step) {
        read += step;
        report(PullPhase::kResuming, read, &source, 0);
      }));
  ISTHMUS_RETURN_IF_ERROR(check_space(source, file->size()));
  FetchContext context{*file, store_.partial(),    key_, options_, plan_.size, digest_known,
                       0,     source.parts.size(), {}};
  context.report = [&](PullPhase phase, uint64_t done) {
    if (!plan_.size && context.size) plan_.size = context.size;
    report(phase, done, &source, context.part);
  };
  for (context.part = file->parts_done(); context.part < source.parts.size(); ++context.part) {
    Status status = fetch_part(source.parts[context.part], context);
    if (!status.ok()) {
      // So that the next pull goes on from here; the failure itself is what matters to the caller.
      static_cast<void>(file->checkpoint());
      return status;
    }
  }
  return check_and_publish(*file, source);
}

Result<PullOutcome> Puller::run() {
  ISTHMUS_ASSIGN_OR_RETURN(std::optional<PullOutcome> here, already_here());
  if (here) return *here;
  ISTHMUS_RETURN_IF_ERROR(ask_licence());

  const std::string lock_name = key_ + ".lock";
  ISTHMUS_ASSIGN_OR_RETURN(FolderLock held, store_.partial().lock(lock_name, options_.stop, [&] {
    report(PullPhase::kWaiting, 0, nullptr, 0);
    notice("another pull of '" + plan_.name + "' is under way; waiting for it");
  }));
  // Whoever held the lock before may have brought the model.
  ISTHMUS_ASSIGN_OR_RETURN(here, already_here());
  if (here) return *here;
  if (!options_.again && plan_.size && store_.has_blob(plan_.sha256, *plan_.size)) {
    ISTHMUS_ASSIGN_OR_RETURN(const FolderLock publishing, store_.lock(options_.stop));
    if (store_.has_blob(plan_.sha256, *plan_.size)) {
      ISTHMUS_ASSIGN_OR_RETURN(PullOutcome shared,
                               record(plan_.sha256, *plan_.size, plan_.sources.front().text));
      shared.was_here = true;
      return shared;
    }
  }

  Status last;
  for (size_t i = 0; i < plan_.sources.size(); ++i) {
    Result<PullOutcome> outcome = fetch_from(plan_.sources[i]);
    if (outcome.ok()) {
      static_cast<void>(store_.partial().remove(lock_name));  // ours; a leftover lock file does no harm
      return outcome;
    }
    const Code code = outcome.status().code();
    if (code == Code::kCancelled || code == Code::kDeadlineExceeded || code == Code::kResourceExhausted) {
      return outcome.status();
    }
    const Status status = outcome.status().with_context(plan_.sources[i].text);
    if (i + 1 < plan_.sources.size()) notice(status.message() + "; trying the next source");
    last = last.ok() ? status : Status(status.code(), last.message() + "; " + status.message());
  }
  return last;
}

}  // namespace

std::string_view phase_name(PullPhase phase) {
  switch (phase) {
    case PullPhase::kWaiting:
      return "waiting";
    case PullPhase::kResuming:
      return "resuming";
    case PullPhase::kDownloading:
      return "downloading";
    case PullPhase::kUnpacking:
      return "unpacking";
    case PullPhase::kCopying:
      return "copying";
    case PullPhase::kPublishing:
      break;
  }
  return "publishing";
}

Result<PullOutcome> pull_model(ModelStore& store, const Catalogue& catalogue, const std::string& reference,
                               const PullOptions& options) {
  ISTHMUS_ASSIGN_OR_RETURN(Plan plan, make_plan(catalogue, reference, options));
  return Puller(store, options, std::move(plan)).run();
}

std::optional<Result<ResolvedModel>> resolve_file(const std::string& reference) {
  const Result<FileInfo> file = file_info(reference);
  const bool is_path = reference.find('/') != std::string::npos || reference.ends_with(".gguf");
  if (file.ok() && file->is_regular) return ResolvedModel{reference, "", ""};
  if (!is_path || has_source_scheme(reference)) return std::nullopt;
  const std::string shown = "'" + printable(reference, 400) + "'";
  if (file.ok()) return invalid_argument(shown + " is a folder or device; a model is a .gguf file");
  if (file.status().code() != Code::kNotFound) return file.status();
  return not_found("no model file " + shown);
}

Result<ResolvedModel> resolve_model(const ModelStore& store, const Catalogue& catalogue,
                                    const std::string& reference) {
  if (auto file = resolve_file(reference)) return *std::move(file);
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<StoredModel> models, store.list());
  const CatalogueEntry* entry = catalogue.find(reference);
  std::vector<std::string> names = catalogue.names();
  // A name of its own in the store goes before an alias of the catalogue.
  for (const bool by_alias : {false, true}) {
    for (const StoredModel& model : models) {
      const bool exact = model.manifest.name == reference || model.manifest.source == reference;
      const bool aliased = entry != nullptr && model.manifest.name == entry->name;
      if (by_alias ? !aliased : !exact) continue;
      ISTHMUS_RETURN_IF_ERROR(model.state);
      return ResolvedModel{model.path, model.manifest.name, model.manifest.sha256};
    }
  }
  const std::string shown = printable(reference, 200);
  if (entry != nullptr) {
    return not_found("the model '" + shown + "' is not on this machine yet; get it with: isthmus pull " +
                     shown);
  }
  if (has_source_scheme(reference)) {
    return not_found("nothing was pulled from '" + shown + "' yet; get it with: isthmus pull " + shown);
  }
  for (const StoredModel& model : models) names.push_back(model.manifest.name);
  return not_found("no model '" + shown + "', neither on this machine nor in the catalogue" +
                   did_you_mean(reference, names));
}

}  // namespace isthmus
