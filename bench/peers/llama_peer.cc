// Measures llama.cpp through its public C API, one setting per run, for bench/peers/compare.py.
//
//   llama_peer MODEL [--threads N] [--depth D] [--flash on|off] [--repack on|off] [--prefill N,N...]
//   [--decode N]
//              [--state FILE]
//
// Prints one JSON object: {"rows": [{"kind": "prefill"|"decode", "tokens": N, "seconds": S}], "load_seconds":
// S}. As in llama-bench: f16 KV, physical batches of 512, random tokens, logits of the last token only, one
// unmeasured run of the same kind first; the context is first filled to --depth, and every measurement starts
// from there. With
// --state the filled context is kept in a file, because filling costs more than all measurements together.
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

// What ik_llama.cpp, which left llama.cpp's interface at an earlier state, says differently.
namespace dialect {
#ifdef PEER_IK
void set_flash(llama_context_params& params, bool on) { params.flash_attn = on; }
void set_repack(llama_model_params& params, bool on) { params.repack_tensors = on; }
uint32_t vocab_size(const llama_model* model) { return static_cast<uint32_t>(llama_n_vocab(model)); }
void clear(llama_context* ctx) { llama_kv_cache_clear(ctx); }
void free_model(llama_model* model) { llama_free_model(model); }
llama_batch batch(std::vector<llama_token>& tokens, size_t position) {
  return llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()),
                             static_cast<llama_pos>(position), 0);
}
size_t state_size(llama_context* ctx) { return llama_state_seq_get_size(ctx, 0, 0); }
size_t save(llama_context* ctx, std::vector<uint8_t>& to) {
  return llama_state_seq_get_data(ctx, to.data(), to.size(), 0, 0);
}
size_t restore(llama_context* ctx, const std::vector<uint8_t>& from) {
  return llama_state_seq_set_data(ctx, from.data(), from.size(), 0, 0);
}
#else
void set_flash(llama_context_params& params, bool on) {
  params.flash_attn_type = on ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
}
void set_repack(llama_model_params& params, bool on) { params.use_extra_bufts = on; }
uint32_t vocab_size(const llama_model* model) {
  return static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
}
void clear(llama_context* ctx) { llama_memory_clear(llama_get_memory(ctx), false); }
void free_model(llama_model* model) { llama_model_free(model); }
llama_batch batch(std::vector<llama_token>& tokens, size_t) {
  return llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()));
}
size_t state_size(llama_context* ctx) { return llama_state_seq_get_size(ctx, 0); }
size_t save(llama_context* ctx, std::vector<uint8_t>& to) {
  return llama_state_seq_get_data(ctx, to.data(), to.size(), 0);
}
size_t restore(llama_context* ctx, const std::vector<uint8_t>& from) {
  return llama_state_seq_set_data(ctx, from.data(), from.size(), 0);
}
#endif
}  // namespace dialect

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model, state;
  int threads = 1;
  size_t depth = 0, decode = 0;
  std::vector<size_t> prefill;
  bool flash = false, repack = true;
};

[[noreturn]] void fail(const std::string& what) {
  std::cerr << "llama_peer: " << what << '\n';
  std::exit(1);
}

bool on_off(const std::string& flag, const std::string& value) {
  if (value != "on" && value != "off") fail(flag + " takes on or off");
  return value == "on";
}

std::vector<size_t> sizes_of(const std::string& list) {
  std::vector<size_t> out;
  std::istringstream in(list);
  for (std::string item; std::getline(in, item, ',');) out.push_back(std::stoul(item));
  return out;
}

Options parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) fail("usage: llama_peer MODEL [--option value]...");
  Options out;
  out.model = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") {
      out.threads = std::stoi(value);
    } else if (flag == "--depth") {
      out.depth = std::stoul(value);
    } else if (flag == "--decode") {
      out.decode = std::stoul(value);
    } else if (flag == "--prefill") {
      out.prefill = sizes_of(value);
    } else if (flag == "--flash") {
      out.flash = on_off(flag, value);
    } else if (flag == "--repack") {
      out.repack = on_off(flag, value);
    } else if (flag == "--state") {
      out.state = value;
    } else {
      fail("unknown option: " + flag);
    }
  }
  return out;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Peer {
 public:
  Peer(llama_model* model, const Options& options) : options_(options) {
    size_t longest = options.decode;
    for (const size_t n : options.prefill) longest = std::max(longest, n);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(options.depth + longest + 1);
    params.n_batch = 2048;
    params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = options.threads;
    dialect::set_flash(params, options.flash);
    ctx_.reset(llama_init_from_model(model, params));
    if (!ctx_) fail("cannot make a context");
    vocab_ = dialect::vocab_size(model);
  }

  // Brings the context to --depth once; later calls of restore() bring it back there.
  void fill() {
    if (options_.depth == 0) return;
    if (!load_state()) {
      llama_set_n_threads(ctx_.get(), 2, 2);  // what fills the context does not change what is measured
      run(options_.depth, false);
      llama_set_n_threads(ctx_.get(), options_.threads, options_.threads);
      state_.resize(dialect::state_size(ctx_.get()));
      if (dialect::save(ctx_.get(), state_) == 0) fail("cannot save the context");
      save_state();
    }
  }

  double measure(size_t tokens, bool one_by_one) {
    restore();
    run(one_by_one ? 1 : tokens, one_by_one);  // unmeasured
    restore();
    const auto begin = Clock::now();
    run(tokens, one_by_one);
    return seconds_since(begin);
  }

 private:
  void restore() {
    dialect::clear(ctx_.get());
    position_ = 0;
    if (state_.empty()) return;
    if (dialect::restore(ctx_.get(), state_) == 0) fail("cannot restore the context");
    position_ = options_.depth;
  }

  void run(size_t tokens, bool one_by_one) {
    std::vector<llama_token> batch;
    for (size_t done = 0; done < tokens; done += batch.size()) {
      batch.resize(one_by_one ? 1 : std::min<size_t>(tokens - done, 2048));
      for (llama_token& token : batch) token = next_token();
      if (llama_decode(ctx_.get(), dialect::batch(batch, position_)) != 0) fail("llama_decode failed");
      llama_synchronize(ctx_.get());
      position_ += batch.size();
    }
  }

  llama_token next_token() {
    seed_ = seed_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<llama_token>((seed_ >> 33) % vocab_);
  }

  bool load_state() {
    std::ifstream file(options_.state, std::ios::binary);
    if (options_.state.empty() || !file) return false;
    state_.assign(std::istreambuf_iterator<char>(file), {});
    return !state_.empty();
  }

  void save_state() const {
    if (options_.state.empty()) return;
    std::ofstream file(options_.state, std::ios::binary);
    if (!file.write(reinterpret_cast<const char*>(state_.data()),
                    static_cast<std::streamsize>(state_.size()))) {
      fail("cannot write " + options_.state);
    }
  }

  const Options& options_;
  std::unique_ptr<llama_context, decltype(&llama_free)> ctx_{nullptr, &llama_free};
  std::vector<uint8_t> state_;
  uint32_t vocab_ = 0;
  size_t position_ = 0;
  uint64_t seed_ = 1;
};

void print_row(bool& first, const char* kind, size_t tokens, double seconds) {
  std::cout << (first ? "" : ", ") << "{\"kind\": \"" << kind << "\", \"tokens\": " << tokens
            << ", \"seconds\": " << seconds << "}";
  first = false;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::cerr << text;
      },
      nullptr);
  llama_backend_init();
  const auto begin = Clock::now();
  llama_model_params params = llama_model_default_params();
  dialect::set_repack(params, options.repack);
  const std::unique_ptr<llama_model, decltype(&dialect::free_model)> model(
      llama_model_load_from_file(options.model.c_str(), params), &dialect::free_model);
  if (!model) fail("cannot load " + options.model);
  const double load_seconds = seconds_since(begin);
  Peer peer(model.get(), options);
  peer.fill();
  bool first = true;
  std::cout << "{\"rows\": [";
  for (const size_t tokens : options.prefill)
    print_row(first, "prefill", tokens, peer.measure(tokens, false));
  if (options.decode > 0) print_row(first, "decode", options.decode, peer.measure(options.decode, true));
  std::cout << "], \"load_seconds\": " << load_seconds << "}\n";
  return 0;
} catch (const std::exception& error) {
  fail(error.what());
}
