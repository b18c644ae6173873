// isthmus bench: the five figures of a model over a grid of prompt length, depth, threads and batch.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "apps/isthmus/bench_grid.h"
#include "apps/isthmus/output.h"

namespace isthmus::cli {
namespace {

struct BenchArgs {
  ModelArgs model;
  BenchGrid grid;
  std::string format = "table";
};

std::string number(double value, int digits) {
  return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-";
}

/// "?" where the line was too short for the source of the energy.
std::string energy(double joules, const BenchRow& row) {
  return row.energy_long_enough ? number(joules, 4) : "?";
}

std::string spread(const BenchRow& row) { return fmt::format("±{:.0f} %", row.spread() * 100); }

void print_table(const std::vector<BenchRow>& rows, bool limit) {
  std::vector<std::string> heads = {"kind",   "tokens",  "depth",   "batch",   "threads", "tokens/s", "each",
                                    "spread", "TTFT ms", "TBT p50", "TBT p99", "J/token", "net",      "peak"};
  if (limit) heads.insert(heads.end(), {"limit GB/s", "of limit"});
  std::vector<size_t> numbers(heads.size() - 1);
  std::iota(numbers.begin(), numbers.end(), 1);
  Table table(heads);
  table.align_right(numbers);
  for (const auto& r : rows) {
    std::vector<std::string> cells = {r.kind,
                                      std::to_string(r.tokens),
                                      std::to_string(r.depth),
                                      std::to_string(r.batch),
                                      std::to_string(r.threads),
                                      number(r.rate(), 1),
                                      number(r.rate_each(), 1),
                                      spread(r),
                                      number(r.ttft_seconds * 1e3, 1),
                                      number(r.gap_p50 * 1e3, 2),
                                      number(r.gap_p99 * 1e3, 2),
                                      energy(r.joules_gross, r),
                                      energy(r.joules_net, r),
                                      human_bytes(r.peak_bytes)};
    if (limit) {
      const bool measured = r.limit_gb_per_second > 0;
      cells.push_back(number(r.limit_gb_per_second, 1));
      cells.push_back(measured ? fmt::format("{:.0f} %", r.share_of_limit * 100) : "-");
    }
    table.add(cells);
  }
  table.print();
}

void print_csv(const BenchReport& report) {
  fmt::print(
      "kind,tokens,depth,batch,threads,tokens_per_second,tokens_per_second_each,spread,repeats,ttft_ms,"
      "tbt_p50_ms,tbt_p99_ms,joules_per_token_gross,joules_per_token_net,energy_source,peak_memory_bytes,"
      "limit_gb_per_second,share_of_limit\n");
  for (const auto& r : report.rows) {
    fmt::print(
        "{},{},{},{},{},{:.3f},{:.3f},{:.4f},{:.3f},{:.3f},{:.3f},{:.3f},{:.6f},{:.6f},{},{},{:.2f},{:.3f}\n",
        r.kind, r.tokens, r.depth, r.batch, r.threads, r.rate(), r.rate_each(), r.spread(),
        fmt::join(r.rates, ";"), r.ttft_seconds * 1e3, r.gap_p50 * 1e3, r.gap_p99 * 1e3, r.joules_gross,
        r.joules_net, report.energy_source, r.peak_bytes, r.limit_gb_per_second, r.share_of_limit);
  }
}

nlohmann::ordered_json row_json(const std::string& model, const BenchRow& r) {
  return {{"model", model},
          {"kind", r.kind},
          {"tokens", r.tokens},
          {"depth", r.depth},
          {"batch", r.batch},
          {"threads", r.threads},
          {"tokens_per_second", r.rate()},
          {"tokens_per_second_each", r.rate_each()},
          {"spread", r.spread()},
          {"repeats", r.rates},
          {"ttft_ms", r.ttft_seconds * 1e3},
          {"tbt_p50_ms", r.gap_p50 * 1e3},
          {"tbt_p99_ms", r.gap_p99 * 1e3},
          {"joules_per_token_gross", r.joules_gross},
          {"joules_per_token_net", r.joules_net},
          {"energy_long_enough", r.energy_long_enough},
          {"limit_gb_per_second", r.limit_gb_per_second},
          {"share_of_limit", r.share_of_limit},
          {"head_two_stage_steps", r.head.two_stage_steps},
          {"head_full_steps", r.head.full_steps},
          {"head_touched_share",
           r.head.touched / static_cast<double>(std::max<uint64_t>(1, r.head.two_stage_steps))},
          {"head_full_ms", r.head.full_seconds * 1e3},
          {"head_two_stage_ms", r.head.two_stage_seconds * 1e3},
          {"peak_memory_bytes", r.peak_bytes},
          {"kv_bytes", r.kv_bytes}};
}

Status bench(const BenchArgs& args, const Context& context) {
  if (args.format != "table" && args.format != "csv") {
    return invalid_argument("--format is '" + args.format + "'; known are table and csv (and --json)");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const BenchReport report, run_bench(args.model, args.grid, context));
  if (context.json) {
    nlohmann::ordered_json out = {{"model", args.model.model},
                                  {"isa", report.isa},
                                  {"cpu", report.cpu},
                                  {"energy_source", report.energy_source},
                                  {"idle_watts", report.idle_watts},
                                  {"planned_memory_bytes", report.planned_bytes},
                                  {"load_seconds", report.load_seconds},
                                  {"head", report.head},
                                  {"rows", nlohmann::ordered_json::array()}};
    for (const auto& row : report.rows) out["rows"].push_back(row_json(args.model.model, row));
    print_json(out);
    return ok_status();
  }
  if (args.format == "csv") {
    print_csv(report);
    return ok_status();
  }
  fmt::print(
      "{} on {} ({}), energy by {} over an idle baseline of {:.1f} W, planned memory {}, loaded in {:.2f} "
      "s\n",
      args.model.model, report.cpu, report.isa, report.energy_source, report.idle_watts,
      human_bytes(report.planned_bytes), report.load_seconds);
  print_table(report.rows, args.grid.limit);
  return ok_status();
}

}  // namespace

Command bench_command() {
  return {
      .name = "bench",
      .group = Group::kMeasure,
      .summary = "Measure speed, energy and memory",
      .json = true,
      .aliases = {},
      .description =
          "For each combination of the lists: how fast -p prompt tokens are read and -n tokens are "
          "generated behind -d tokens of "
          "context. Medians over --repeat runs of random tokens or of --text; the spread is half the range "
          "over the "
          "median. Sampling and "
          "tokenisation are not part of the times. Energy says where it comes from: rapl, battery, or a "
          "documented model.",
      .setup = [](CLI::App& app) {
        auto args = std::make_shared<BenchArgs>();
        add_model_args(app, args->model, false);
        app.remove_option(app.get_option("--threads"));
        app.remove_option(app.get_option("--ctx"));
        BenchGrid& g = args->grid;
        app.add_option("-p,--prompt", g.prompts, "prompt lengths, as 128,512; 0 = none")
            ->delimiter(',')
            ->capture_default_str();
        app.add_option("-n,--generate", g.generate, "tokens to generate; 0 = none")
            ->delimiter(',')
            ->capture_default_str();
        app.add_option("--verify", g.verify,
                       "tokens of steps that verify a draft, as 2,4,8,16; each gives a line (default: none)")
            ->delimiter(',')
            ->check(CLI::Range(1, 512));
        app.add_option("-d,--depth", g.depths, "tokens of context before")
            ->delimiter(',')
            ->capture_default_str();
        app.add_option("-t,--threads", g.threads, "thread counts (default: as many as can run at once)")
            ->delimiter(',');
        app.add_option("-b,--batch", g.batches, "sequences that are read or generated together")
            ->delimiter(',')
            ->check(CLI::Range(1, 4096))
            ->capture_default_str();
        app.add_option("--text", g.text,
                       "a file whose text is read and generated, over and over, instead of random tokens")
            ->check([](const std::string& path) { return path.empty() ? "the path is empty" : ""; });
        app.add_option("-r,--repeat", g.repeats, "runs of each line")
            ->check(CLI::Range(1, 1000))
            ->capture_default_str();
        app.add_flag(
            "--limit", g.limit,
            "measure how fast memory can be read before each line of generation, and the share of it that "
            "reading the weights reaches (takes 256 MiB more)");
        app.add_option("--format", args->format, "table or csv")->capture_default_str();
        return Action([args](const Context& context) { return bench(*args, context); });
      }};
}

}  // namespace isthmus::cli
