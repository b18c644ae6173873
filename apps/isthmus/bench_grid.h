// The measuring behind `isthmus bench`: forward steps over random or given tokens, timed on the monotonic
// clock.
#pragma once

#include <string>
#include <vector>

#include "apps/isthmus/model_args.h"

namespace isthmus::cli {

struct BenchGrid {
  std::vector<size_t> prompts = {128, 512};
  std::vector<size_t> generate = {64};
  std::vector<size_t> verify;  // tokens of steps that verify a draft; empty: none
  std::vector<size_t> depths = {0};
  std::vector<size_t> threads;  // empty: as many as can run at once
  std::vector<size_t> batches = {1};
  std::string text;  // file whose tokens are read and generated, over and over; empty: random tokens
  int repeats = 5;
  bool limit = false;  // measure the memory's bandwidth before each line of generation
};

struct BenchRow {
  std::string kind;  // "prefill", "decode" or "verify"
  size_t tokens = 0;
  size_t depth = 0;
  size_t batch = 1;
  size_t threads = 0;
  std::vector<double> rates;  // tokens per second of each repeat, all sequences together
  double ttft_seconds = 0;    // prefill: median time to the first token's logits
  double gap_p50 = 0;         // decode: seconds between tokens of a sequence, over all repeats
  double gap_p99 = 0;
  double joules_gross = 0;  // per token
  double joules_net = 0;
  bool energy_long_enough = false;  // the line took as long as the energy source needs to say something
  uint64_t peak_bytes = 0;          // of the process so far
  uint64_t kv_bytes = 0;            // decode: of the blocks held at its end
  double limit_gb_per_second = 0;   // BandwidthProbe::limit() just before; 0: not asked for
  double share_of_limit = 0;        // bytes of the weights times steps per second, over that
  HeadFigures head;                 // decode with one sequence: how the best logit was found

  double rate() const;  // median, of all sequences together
  double rate_each() const { return rate() / static_cast<double>(batch); }
  double spread() const;  // half the range, as a share of the median
};

struct BenchReport {
  std::string isa;
  std::string cpu;
  std::string energy_source;
  double idle_watts = 0;
  uint64_t planned_bytes = 0;
  double load_seconds = 0;
  nlohmann::ordered_json head;
  std::vector<BenchRow> rows;
};

Result<BenchReport> run_bench(const ModelArgs& args, const BenchGrid& grid, const Context& context);

}  // namespace isthmus::cli
