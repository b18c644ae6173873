#include "apps/isthmus/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "apps/isthmus/output.h"
#include "os/cpu.h"

namespace isthmus::cli {
namespace {

double rate(size_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

double kept_share(const KvFigures& kv) {
  return kv.keys_before == 0 ? 1 : static_cast<double>(kv.keys_after) / static_cast<double>(kv.keys_before);
}

size_t read_tokens(const RunFigures& f) { return f.prompt_tokens - f.reused_tokens; }

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(std::floor(at));
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

std::string figures_line(const RunFigures& f, const std::optional<Energy>& energy) {
  std::string out = fmt::format("{} + {} tokens", f.prompt_tokens, f.generated_tokens);
  if (f.stored_tokens > 0) {
    out += fmt::format(" ({} reused, {} of them from flash in {:.0f} ms)", f.reused_tokens, f.stored_tokens,
                       f.restore_seconds * 1e3);
  } else if (f.reused_tokens > 0) {
    out += fmt::format(" ({} reused)", f.reused_tokens);
  }
  out += fmt::format(", TTFT {:.0f} ms, prompt {:.0f} tokens/s", f.ttft_seconds * 1e3,
                     rate(read_tokens(f), f.prefill_seconds));
  if (!f.gap_seconds.empty()) {
    out +=
        fmt::format(", TBT p50 {:.1f} ms, p99 {:.1f} ms, {:.1f} tokens/s", quantile(f.gap_seconds, 0.5) * 1e3,
                    quantile(f.gap_seconds, 0.99) * 1e3, rate(f.gap_seconds.size(), f.decode_seconds));
  }
  if (f.speculation.steps > 0) {
    out += fmt::format(", {} of {} drafted tokens right in {} steps", f.speculation.accepted,
                       f.speculation.drafted, f.speculation.steps);
  }
  if (energy && f.generated_tokens > 0) {
    out += fmt::format(", {:.3f} J/token gross ({})",
                       energy->gross_joules / static_cast<double>(read_tokens(f) + f.generated_tokens),
                       energy_source_name(energy->source));
  }
  if (f.kv.pruned) {
    out += fmt::format(", {} keeps {:.0f} % of the prompt's keys", kv_policy_name(f.kv.policy),
                       100 * kept_share(f.kv));
  }
  if (f.kv.exactness == Exactness::kQuantised) {
    out += fmt::format(", KV of {} bits, {}", f.kv.codec, human_bytes(f.kv.bytes));
  }
  if (f.kv.exactness == Exactness::kComposed) out += ", composed";
  if (f.context_shifts > 0) out += fmt::format(", {} context shifts", f.context_shifts);
  return out + ", peak " + human_bytes(os::peak_resident_bytes());
}

nlohmann::ordered_json figures_json(const RunFigures& f, const std::optional<Energy>& energy) {
  nlohmann::ordered_json out = {
      {"prompt_tokens", f.prompt_tokens},
      {"reused_tokens", f.reused_tokens},
      {"reused_from", {{"memory", f.reused_tokens - f.stored_tokens}, {"flash", f.stored_tokens}}},
      {"restore_ms", f.restore_seconds * 1e3},
      {"generated_tokens", f.generated_tokens},
      {"ttft_ms", f.ttft_seconds * 1e3},
      {"tbt_p50_ms", quantile(f.gap_seconds, 0.5) * 1e3},
      {"tbt_p99_ms", quantile(f.gap_seconds, 0.99) * 1e3},
      {"prefill_tokens_per_second", rate(read_tokens(f), f.prefill_seconds)},
      {"decode_tokens_per_second", rate(f.gap_seconds.size(), f.decode_seconds)},
      {"context_shifts", f.context_shifts},
      {"drafted_tokens", f.speculation.drafted},
      {"accepted_tokens", f.speculation.accepted},
      {"verify_steps", f.speculation.steps},
      {"peak_memory_bytes", os::peak_resident_bytes()},
  };
  out["kv"] = {{"bytes", f.kv.bytes},   {"exactness", exactness_name(f.kv.exactness)},
               {"bits", f.kv.codec},    {"policy", kv_policy_name(f.kv.policy)},
               {"pruned", f.kv.pruned}, {"keys_kept", kept_share(f.kv)}};
  if (energy) {
    const auto tokens = static_cast<double>(std::max<size_t>(1, read_tokens(f) + f.generated_tokens));
    // Without an idle baseline nobody knows what the run added to it.
    nlohmann::ordered_json net;
    if (energy->idle_watts > 0) net = energy->net_joules / tokens;
    out["energy"] = {{"source", energy_source_name(energy->source)},
                     {"joules_per_token_gross", energy->gross_joules / tokens},
                     {"joules_per_token_net", net},
                     {"idle_watts", energy->idle_watts},
                     {"long_enough", energy->long_enough}};
  }
  return out;
}

}  // namespace isthmus::cli
