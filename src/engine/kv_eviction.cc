#include "engine/kv_eviction.h"

#include "engine/kv_zip.h"

namespace isthmus {

Result<std::unique_ptr<KvEviction>> KvEviction::create(const EvictionOptions& options,
                                                       const Transformer& model, Ledger& ledger) {
  ISTHMUS_RETURN_IF_ERROR(check_eviction(options));
  std::unique_ptr<KvEviction> out(new KvEviction(options, model));
  out->ledger_ = &ledger;
  out->begin();
  if (options.needs_queries()) {
    const size_t window = options.window;
    const uint64_t bytes = QueryRecord::bytes(*out->geometry_, window, options.needs_moments());
    ISTHMUS_ASSIGN_OR_RETURN(out->charge_, ledger.charge(MemoryKind::kWork, bytes));
    out->record_ = std::make_unique<QueryRecord>(*out->geometry_, window, options.needs_moments());
  }
  return out;
}

Result<std::unique_ptr<KvEviction>> KvEviction::fork() const {
  ISTHMUS_ASSIGN_OR_RETURN(std::unique_ptr<KvEviction> out, create(options_, *model_, *ledger_));
  out->geometry_ = geometry_;
  if (record_ != nullptr) out->record_ = std::make_unique<QueryRecord>(*record_);
  out->report_ = report_;
  out->window_budget_ = window_budget_;
  out->gone_ = gone_;
  return out;
}

Status KvEviction::after_step(KvSequence& kv) {
  if (endless()) {
    const size_t before = kv.length();
    ISTHMUS_RETURN_IF_ERROR(slide(options_, kv));
    gone_ += before - kv.length();
    report_ = {gone_ + kv.length(), kv.length()};
    return ok_status();
  }
  if (window_budget_ == 0) return ok_status();
  return trim_window(options_, *geometry_, window_budget_, kv);
}

Result<EvictionReport> KvEviction::choose(KvSequence& kv, std::span<const TokenId> text, LanguageModel& model,
                                          Workspace& workspace, const StopPolicy& stop) {
  if (!options_.rereads()) return isthmus::evict(options_, *geometry_, record_.get(), kv, model.pool());
  ISTHMUS_ASSIGN_OR_RETURN(const auto scores, kvzip_scores(model, *geometry_, kv, text, workspace, stop));
  return evict_scored(options_, *geometry_, scores, kv);
}

Result<EvictionReport> KvEviction::evict(KvSequence& kv, std::span<const TokenId> text, LanguageModel& model,
                                         Workspace& workspace, const StopPolicy& stop) {
  if (endless()) return report_;
  ISTHMUS_ASSIGN_OR_RETURN(const EvictionReport report, choose(kv, text, model, workspace, stop));
  if (options_.policy == KvPolicy::kWindow && window_budget_ == 0) {
    window_budget_ = layer_budgets(options_, 1, kv.length()).front();
  }
  report_.keys_before += report.keys_before;
  report_.keys_after += report.keys_after;
  return report;
}

}  // namespace isthmus
