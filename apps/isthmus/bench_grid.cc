#include "apps/isthmus/bench_grid.h"

#include <algorithm>
#include <chrono>

#include "apps/isthmus/figures.h"
#include "apps/isthmus/input.h"
#include "base/rng.h"
#include "engine/kv_eviction.h"
#include "kernels/isa.h"
#include "ops/machine_limits.h"
#include "os/cpu.h"
#include "os/energy.h"

namespace isthmus::cli {
namespace {

constexpr size_t kStepTokens = 512;
constexpr double kIdleSeconds = 0.5;
constexpr int kVerifySteps = 8;  // a repeat of a line `verify`

size_t most(const std::vector<size_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

size_t whole_blocks(size_t tokens) { return (tokens + kBlockKeys - 1) / kBlockKeys * kBlockKeys; }

/// One thread count: a pool and a workspace over the loaded model.
class Bench {
 public:
  Bench(LanguageModel& model, size_t threads, Meter& meter, double idle_watts, const BenchGrid& grid,
        CancelToken stop)
      : model_(model), pool_(threads), meter_(meter), idle_watts_(idle_watts), grid_(grid) {
    stop_.token = std::move(stop);
  }

  /// `text`: the tokens to read and generate; empty: random ones.
  Status prepare(std::span<const TokenId> text) {
    text_ = text;
    RunShape shape = model_.run_shape();
    ISTHMUS_ASSIGN_OR_RETURN(workspace_,
                             Workspace::create(model_.transformer(), shape, pool_.size(), model_.ledger()));
    logits_.resize(shape.max_outputs * model_.config().vocab);
    return ok_status();
  }

  /// Reads `n` prompt tokens of each of `batch` sequences behind `depth` others.
  Result<BenchRow> prefill(size_t n, size_t depth, size_t batch) {
    BenchRow row = new_row("prefill", n, depth, batch);
    std::vector<KvSequence> sequences;
    ISTHMUS_RETURN_IF_ERROR(fill(batch, depth, sequences));
    ISTHMUS_RETURN_IF_ERROR(read(sequences, n));  // warm-up: pages, caches, clocks
    std::vector<double> times;
    ISTHMUS_ASSIGN_OR_RETURN(EnergySpan span, EnergySpan::start(meter_, idle_watts_));
    for (int i = 0; i < grid_.repeats; ++i) {
      for (auto& sequence : sequences) ISTHMUS_RETURN_IF_ERROR(sequence.truncate(depth));
      const auto start = SteadyClock::now();
      ISTHMUS_RETURN_IF_ERROR(read(sequences, n));
      times.push_back(seconds_since(start));
      row.rates.push_back(static_cast<double>(n * batch) / times.back());
    }
    row.ttft_seconds = quantile(times, 0.5);
    return finish(row, span, n * batch);
  }

  /// Generates `n` tokens for each of `batch` sequences behind `depth` tokens.
  Result<BenchRow> decode(size_t n, size_t depth, size_t batch) {
    BenchRow row = new_row("decode", n, depth, batch);
    ISTHMUS_RETURN_IF_ERROR(measure_limit(row));
    std::vector<KvSequence> sequences;
    ISTHMUS_RETURN_IF_ERROR(fill(batch, depth, sequences));
    ISTHMUS_RETURN_IF_ERROR(
        generate(sequences, model_.two_stage_head() ? n : std::min<size_t>(n, 4), nullptr));
    std::vector<double> gaps;
    ISTHMUS_ASSIGN_OR_RETURN(EnergySpan span, EnergySpan::start(meter_, idle_watts_));
    for (int i = 0; i < grid_.repeats; ++i) {
      for (auto& sequence : sequences) ISTHMUS_RETURN_IF_ERROR(sequence.truncate(depth));
      const auto start = SteadyClock::now();
      ISTHMUS_RETURN_IF_ERROR(generate(sequences, n, &gaps));
      row.rates.push_back(static_cast<double>(n * batch) / seconds_since(start));
    }
    row.gap_p50 = quantile(gaps, 0.5);
    row.gap_p99 = quantile(gaps, 0.99);
    if (row.limit_gb_per_second > 0 && !model_.two_stage_head()) {
      const double read = static_cast<double>(model_.transformer().weight_bytes()) * row.rate_each() / 1e9;
      row.share_of_limit = read / row.limit_gb_per_second;
    }
    row.head = workspace_->head_figures();
    row.kv_bytes = kv_bytes_of(sequences);
    return finish(row, span, n * batch);
  }

  /// Reads `n` tokens of each sequence in one step with the logits of all of them, as a draft is verified.
  Result<BenchRow> verify(size_t n, size_t depth, size_t batch) {
    BenchRow row = new_row("verify", n, depth, batch);
    std::vector<KvSequence> sequences;
    ISTHMUS_RETURN_IF_ERROR(fill(batch, depth, sequences));
    ISTHMUS_RETURN_IF_ERROR(step(sequences, n, model_.generation_compute(), Rows::kAll));
    std::vector<double> times;
    ISTHMUS_ASSIGN_OR_RETURN(EnergySpan span, EnergySpan::start(meter_, idle_watts_));
    for (int i = 0; i < grid_.repeats * kVerifySteps; ++i) {
      for (auto& sequence : sequences) ISTHMUS_RETURN_IF_ERROR(sequence.truncate(depth));
      const auto start = SteadyClock::now();
      ISTHMUS_RETURN_IF_ERROR(step(sequences, n, model_.generation_compute(), Rows::kAll));
      times.push_back(seconds_since(start));
      row.rates.push_back(static_cast<double>(n * batch) / times.back());
    }
    row.gap_p50 = quantile(times, 0.5);
    row.gap_p99 = quantile(times, 0.99);
    return finish(row, span, kVerifySteps * n * batch);
  }

 private:
  enum class Rows { kNone, kNewest, kAll };  // whose logits are wanted

  BenchRow new_row(const char* kind, size_t tokens, size_t depth, size_t batch) const {
    BenchRow row;
    row.kind = kind;
    row.tokens = tokens;
    row.depth = depth;
    row.batch = batch;
    row.threads = pool_.size();
    return row;
  }

  static uint64_t kv_bytes_of(const std::vector<KvSequence>& sequences) {
    uint64_t bytes = 0;
    for (const auto& kv : sequences) bytes += kv.bytes();
    return bytes;
  }

  Status measure_limit(BenchRow& row) const {
    if (!grid_.limit) return ok_status();
    ISTHMUS_ASSIGN_OR_RETURN(const BandwidthProbe probe, BandwidthProbe::create());
    ISTHMUS_ASSIGN_OR_RETURN(row.limit_gb_per_second, probe.limit(pool_.size()));
    return ok_status();
  }

  /// The next tokens of the text, which begins again at its end; random ones without a text.
  std::vector<TokenId> next_tokens(size_t n) {
    std::vector<TokenId> out(n);
    for (auto& token : out) {
      token = text_.empty() ? static_cast<TokenId>(rng_.below(model_.config().vocab))
                            : text_[text_at_++ % text_.size()];
    }
    return out;
  }

  Status fill(size_t batch, size_t depth, std::vector<KvSequence>& sequences) {
    evictions_.clear();
    texts_.assign(batch, {});
    const EvictionOptions& eviction = model_.options().eviction;
    for (size_t i = 0; i < batch; ++i) {
      sequences.push_back(model_.make_sequence());
      if (!eviction.on()) continue;
      if (eviction.policy != KvPolicy::kStreaming) sequences.back().put_off_coding();
      ISTHMUS_ASSIGN_OR_RETURN(auto made,
                               KvEviction::create(eviction, model_.transformer(), model_.ledger()));
      evictions_.push_back(std::move(made));
    }
    if (depth == 0) return ok_status();
    ISTHMUS_RETURN_IF_ERROR(read(sequences, depth));
    for (size_t i = 0; i < evictions_.size(); ++i) {
      const std::span<const TokenId> text = texts_[i];
      ISTHMUS_RETURN_IF_ERROR(evictions_[i]->evict(sequences[i], text, model_, *workspace_).status());
      if (eviction.policy != KvPolicy::kStreaming) sequences[i].code_now();
    }
    return ok_status();
  }

  /// Reads `n` tokens of each sequence, all sequences in each step; the last step gives the logits of all.
  Status read(std::vector<KvSequence>& kvs, size_t n) {
    const size_t share = std::max<size_t>(1, kStepTokens / kvs.size());
    for (size_t at = 0; at < n;) {
      const size_t count = std::min({share, n - at, kvs.front().until_coding()});
      ISTHMUS_RETURN_IF_ERROR(
          step(kvs, count, model_.prompt_compute(), at + count == n ? Rows::kNewest : Rows::kNone));
      at += count;
    }
    return ok_status();
  }

  /// One forward step over the next `count` tokens for each sequence.
  Status step(std::vector<KvSequence>& kvs, size_t count, Compute compute, Rows rows, size_t best = 0) {
    ISTHMUS_RETURN_IF_ERROR(stop_.check());
    const auto tokens = next_tokens(kvs.size() * count);
    std::vector<ForwardSequence> sequences;
    std::vector<uint32_t> outputs;
    for (size_t s = 0; s < kvs.size(); ++s) {
      ISTHMUS_RETURN_IF_ERROR(kvs[s].grow(count));
      QueryRecord* record = evictions_.empty() ? nullptr : evictions_[s]->record();
      sequences.push_back({&kvs[s], std::span(tokens).subspan(s * count, count), {}, record});
      const size_t first = rows == Rows::kAll ? s * count : (s + 1) * count - 1;
      for (size_t i = first; rows != Rows::kNone && i < (s + 1) * count; ++i) {
        outputs.push_back(static_cast<uint32_t>(i));
      }
    }
    ForwardStep step;
    step.sequences = sequences;
    step.compute = compute;
    if (!outputs.empty()) {
      step.outputs = outputs;
      step.logits = logits_.data();
      step.best = best;
    }
    ISTHMUS_RETURN_IF_ERROR(model_.transformer().forward(step, *workspace_, pool_));
    for (size_t s = 0; s < kvs.size(); ++s) {
      kvs[s].commit(count);
      if (evictions_.empty()) continue;
      const auto read = std::span(tokens).subspan(s * count, count);
      texts_[s].insert(texts_[s].end(), read.begin(), read.end());
    }
    return ok_status();
  }

  Status generate(std::vector<KvSequence>& kvs, size_t n, std::vector<double>* gaps) {
    for (size_t i = 0; i < n; ++i) {
      const auto start = SteadyClock::now();
      ISTHMUS_RETURN_IF_ERROR(
          step(kvs, 1, model_.generation_compute(), Rows::kNewest, kvs.size() == 1 ? 1 : 0));
      if (gaps != nullptr) gaps->push_back(seconds_since(start));
    }
    return ok_status();
  }

  Result<BenchRow> finish(BenchRow row, EnergySpan& span, size_t tokens_per_run) {
    ISTHMUS_ASSIGN_OR_RETURN(const Energy energy, span.finish());
    const double tokens = static_cast<double>(tokens_per_run) * grid_.repeats;
    row.joules_gross = energy.gross_joules / tokens;
    row.joules_net = energy.net_joules / tokens;
    row.energy_long_enough = energy.long_enough;
    row.peak_bytes = os::peak_resident_bytes();
    return row;
  }

  LanguageModel& model_;
  ThreadPool pool_;
  Meter& meter_;
  double idle_watts_;
  const BenchGrid& grid_;
  StopPolicy stop_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<float> logits_;
  std::vector<std::unique_ptr<KvEviction>> evictions_;  // of the line at hand: [sequences], or none
  std::vector<std::vector<TokenId>> texts_;             // what they read
  std::span<const TokenId> text_;
  size_t text_at_ = 0;
  Rng rng_{1};
};

Status run_lines(Bench& bench, const BenchGrid& grid, std::vector<BenchRow>& rows) {
  for (const size_t depth : grid.depths) {
    for (const size_t batch : grid.batches) {
      for (const size_t n : grid.prompts) {
        if (n == 0) continue;
        ISTHMUS_ASSIGN_OR_RETURN(BenchRow row, bench.prefill(n, depth, batch));
        rows.push_back(std::move(row));
      }
      for (const size_t n : grid.generate) {
        if (n == 0) continue;
        ISTHMUS_ASSIGN_OR_RETURN(BenchRow row, bench.decode(n, depth, batch));
        rows.push_back(std::move(row));
      }
      for (const size_t n : grid.verify) {
        if (n == 0) continue;
        ISTHMUS_ASSIGN_OR_RETURN(BenchRow row, bench.verify(n, depth, batch));
        rows.push_back(std::move(row));
      }
    }
  }
  return ok_status();
}

}  // namespace

double BenchRow::rate() const { return quantile(rates, 0.5); }

double BenchRow::spread() const {
  if (rates.empty() || rate() <= 0) return 0;
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  return (*high - *low) / 2 / rate();
}

Result<BenchReport> run_bench(const ModelArgs& args, const BenchGrid& grid, const Context& context) {
  if (most(grid.prompts) + most(grid.generate) + most(grid.verify) == 0) {
    return invalid_argument("nothing to measure: --prompt and --generate are 0 and there is no --verify");
  }
  BenchReport report;
  ISTHMUS_ASSIGN_OR_RETURN(const Isa isa, active_isa());
  report.isa = isa_name(isa);
  report.cpu = os::cpu_info().model_name;
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args));
  std::string text;
  if (!grid.text.empty()) {
    ISTHMUS_ASSIGN_OR_RETURN(text, read_input(grid.text));
    if (text.empty()) return invalid_argument(grid.text + " is empty");
  }
  std::vector<size_t> threads = grid.threads;
  if (threads.empty()) threads.push_back(os::usable_cpus());
  const size_t batch = std::max<size_t>(1, most(grid.batches));
  options.threads = most(threads);
  options.context =
      most(grid.depths) + std::max({most(grid.prompts), most(grid.generate), most(grid.verify)});
  options.kv_tokens = batch * whole_blocks(options.context);
  const size_t outputs = batch * std::max<size_t>(1, most(grid.verify));
  options.step_tokens = std::max(kStepTokens, outputs);
  options.step_outputs = outputs;
  const auto start = SteadyClock::now();
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(args, std::move(options), context));
  report.load_seconds = seconds_since(start);
  report.planned_bytes = model->memory_plan().total();
  model->start_head();
  model->wait_for_head();
  report.head = head_json(*model, nullptr);

  const auto tokens =
      text.empty() ? std::vector<TokenId>() : model->tokenizer().encode(text, Specials::kAsText, true);
  const MeterChoice choice = choose_meter();
  report.energy_source = energy_source_name(choice.meter->source());
  ISTHMUS_ASSIGN_OR_RETURN(report.idle_watts, measure_idle_watts(*choice.meter, kIdleSeconds));
  for (const size_t n : threads) {
    if (n == 0) return invalid_argument("--threads: 0 is no thread count");
    Bench bench(*model, n, *choice.meter, report.idle_watts, grid, context.stop);
    ISTHMUS_RETURN_IF_ERROR(bench.prepare(tokens));
    ISTHMUS_RETURN_IF_ERROR(run_lines(bench, grid, report.rows));
  }
  return report;
}

}  // namespace isthmus::cli
