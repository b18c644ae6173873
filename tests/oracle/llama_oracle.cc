// A small program over llama.cpp's public C API that the oracle scripts drive: it tokenises text and prints
// rows of logits. Not part of the product; bench/peers/build_llama.sh builds it beside llama.cpp.
//
//   llama_oracle tokens MODEL                text on stdin -> "vocab N bos ID add_bos 0|1", then the ids, on
//   stdout llama_oracle rows MODEL [options]        jobs on stdin -> float32 rows on stdout, raw
//   little-endian
//
// A job is one line: FIRST COUNT ID ID ID...  Every job starts from an empty context. It writes COUNT rows of
// vocab values: the ones that follow the tokens FIRST .. FIRST + COUNT - 1 of the line.
// Options: --kv f32|f16|q8_0|q4_0 (the latter two with --flash on), --flash on|off, --repack on|off,
// --threads N, --ctx N, --by-token (one token per step),
// --log-softmax (natural log-probabilities instead of logits). Exit code 1 and one line on stderr on any
// error.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

struct Options {
  std::string verb, model;
  ggml_type kv = GGML_TYPE_F32;
  bool flash = false, repack = true, by_token = false, log_softmax = false;
  int threads = 2;
  uint32_t ctx = 1024;
};

struct Job {
  size_t first = 0, count = 0;
  std::vector<llama_token> tokens;
};

[[noreturn]] void fail(const std::string& what) {
  std::cerr << "llama_oracle: " << what << '\n';
  std::exit(1);
}

bool on_off(const std::string& flag, const std::string& value) {
  if (value != "on" && value != "off") fail(flag + " takes on or off");
  return value == "on";
}

ggml_type kv_type(const std::string& name) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    if (name == ggml_type_name(type)) return type;
  }
  fail("--kv takes f32, f16, q8_0 or q4_0");
}

Options parse(int argc, char** argv) {
  if (argc < 3) fail("usage: llama_oracle tokens|rows MODEL [options]");
  Options out{.verb = argv[1], .model = argv[2]};
  for (int i = 3; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--by-token") {
      out.by_token = true;
    } else if (flag == "--log-softmax") {
      out.log_softmax = true;
    } else if (i + 1 == argc) {
      fail("unknown option, or one without its value: " + flag);
    } else if (const std::string value = argv[++i]; flag == "--kv") {
      out.kv = kv_type(value);
    } else if (flag == "--flash") {
      out.flash = on_off(flag, value);
    } else if (flag == "--repack") {
      out.repack = on_off(flag, value);
    } else if (flag == "--threads") {
      out.threads = std::stoi(value);
    } else if (flag == "--ctx") {
      out.ctx = static_cast<uint32_t>(std::stoul(value));
    } else {
      fail("unknown option: " + flag);
    }
  }
  return out;
}

void quiet(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::cerr << text;
}

void print_tokens(const llama_model* model) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto length = static_cast<int32_t>(text.size());
  std::vector<llama_token> ids(text.size() + 8);
  const int32_t n =
      llama_tokenize(vocab, text.data(), length, ids.data(), static_cast<int32_t>(ids.size()), true, false);
  if (n < 0) fail("the text has more tokens than bytes");
  std::printf("vocab %d bos %d add_bos %d\n", llama_vocab_n_tokens(vocab), llama_vocab_bos(vocab),
              llama_vocab_get_add_bos(vocab) ? 1 : 0);
  for (int32_t i = 0; i < n; ++i) std::printf("%d%c", ids[static_cast<size_t>(i)], i + 1 == n ? '\n' : ' ');
}

Job parse_job(const std::string& line) {
  std::istringstream in(line);
  Job job;
  in >> job.first >> job.count;
  for (llama_token id; in >> id;) job.tokens.push_back(id);
  if (!in.eof() || job.count == 0 || job.first + job.count > job.tokens.size()) fail("bad job: " + line);
  return job;
}

// In place; the sum runs in double so that the reference does not depend on the vocabulary's size.
void to_log_softmax(std::vector<float>& row) {
  float top = row[0];
  for (const float v : row) top = std::max(top, v);
  double sum = 0;
  for (const float v : row) sum += std::exp(static_cast<double>(v) - top);
  const double log_sum = std::log(sum) + top;
  for (float& v : row) v = static_cast<float>(v - log_sum);
}

void write_row(llama_context* ctx, int32_t index, size_t vocab, bool log_softmax) {
  const float* logits = llama_get_logits_ith(ctx, index);
  if (logits == nullptr) fail("no logits at index " + std::to_string(index));
  std::vector<float> row(logits, logits + vocab);
  if (log_softmax) to_log_softmax(row);
  if (std::fwrite(row.data(), sizeof(float), vocab, stdout) != vocab) fail("cannot write to stdout");
}

// Runs tokens [begin, end) of the job in one step and writes the rows that were asked for.
void run_step(llama_context* ctx, const Job& job, size_t begin, size_t end, size_t vocab, bool log_softmax) {
  llama_batch batch = llama_batch_init(static_cast<int32_t>(end - begin), 0, 1);
  batch.n_tokens = static_cast<int32_t>(end - begin);
  const auto wanted = [&](size_t pos) { return pos >= job.first && pos < job.first + job.count; };
  for (size_t pos = begin; pos < end; ++pos) {
    const size_t i = pos - begin;
    batch.token[i] = job.tokens[pos];
    batch.pos[i] = static_cast<llama_pos>(pos);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = wanted(pos) ? 1 : 0;
  }
  if (llama_decode(ctx, batch) != 0) fail("llama_decode failed");
  for (size_t pos = begin; pos < end; ++pos) {
    if (wanted(pos)) write_row(ctx, static_cast<int32_t>(pos - begin), vocab, log_softmax);
  }
  llama_batch_free(batch);
}

void print_rows(llama_model* model, const Options& options) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = options.ctx;
  params.n_batch = options.ctx;
  params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = options.threads;
  params.type_k = params.type_v = options.kv;
  params.flash_attn_type = options.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::unique_ptr<llama_context, decltype(&llama_free)> ctx(llama_init_from_model(model, params),
                                                                  &llama_free);
  if (!ctx) fail("cannot make a context");
  const auto vocab = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  for (std::string line; std::getline(std::cin, line);) {
    const Job job = parse_job(line);
    if (job.tokens.size() > options.ctx) fail("a job is longer than --ctx");
    llama_memory_clear(llama_get_memory(ctx.get()), true);
    const size_t step = options.by_token ? 1 : job.tokens.size();
    for (size_t begin = 0; begin < job.tokens.size(); begin += step) {
      run_step(ctx.get(), job, begin, begin + step, vocab, options.log_softmax);
    }
  }
  if (std::fflush(stdout) != 0) fail("cannot write to stdout");
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  if (options.verb != "tokens" && options.verb != "rows") fail("the verb is tokens or rows");
  llama_log_set(quiet, nullptr);
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = options.verb == "tokens";
  params.use_extra_bufts = options.repack;
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(options.model.c_str(), params), &llama_model_free);
  if (!model) fail("cannot load " + options.model);
  options.verb == "tokens" ? print_tokens(model.get()) : print_rows(model.get(), options);
  return 0;
} catch (const std::exception& error) {
  fail(error.what());
}
