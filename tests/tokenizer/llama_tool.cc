// The protocol of tokenizer_tool.cc, answered by llama.cpp through its public C API. Built by oracle.py, not
// by CMake: it needs llama.cpp's headers and library.
#include <llama.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

bool read_u32(uint32_t& value) { return std::fread(&value, sizeof value, 1, stdin) == 1; }

void answer(const void* data, size_t count, size_t size) {
  const auto n = static_cast<uint32_t>(count);
  std::fwrite(&n, sizeof n, 1, stdout);
  std::fwrite(data, size, count, stdout);
  std::fflush(stdout);
}

void encode(const llama_vocab* vocab, const std::vector<char>& text, uint32_t flags) {
  std::vector<llama_token> ids(text.size() + 8);
  int n = 0;
  for (int turn = 0; turn < 2; ++turn) {
    n = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), ids.data(),
                       static_cast<int>(ids.size()), (flags & 2) != 0, (flags & 1) != 0);
    if (n >= 0) break;
    ids.resize(static_cast<size_t>(-n));
  }
  answer(ids.data(), static_cast<size_t>(n), sizeof(llama_token));
}

void decode(const llama_vocab* vocab, const std::vector<llama_token>& ids, uint32_t flags) {
  std::vector<char> text(ids.size() * 16 + 64);
  int n = 0;
  for (int turn = 0; turn < 2; ++turn) {
    n = llama_detokenize(vocab, ids.data(), static_cast<int>(ids.size()), text.data(),
                         static_cast<int>(text.size()), false, (flags & 1) != 0);
    if (n >= 0) break;
    text.resize(static_cast<size_t>(-n));
  }
  answer(text.data(), static_cast<size_t>(n), 1);
}

bool serve_one(const llama_vocab* vocab, int request) {
  if (request == 's') {
    std::vector<llama_token> ids;
    for (llama_token id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
      if (llama_vocab_is_eog(vocab, id)) ids.push_back(id);
    }
    answer(ids.data(), ids.size(), sizeof(llama_token));
    return true;
  }
  uint32_t flags, count;
  if (!read_u32(flags) || !read_u32(count)) return false;
  if (request == 'e') {
    std::vector<char> text(count);
    if (std::fread(text.data(), 1, count, stdin) != count) return false;
    encode(vocab, text, flags);
    return true;
  }
  std::vector<llama_token> ids(count);
  if (request != 'd' || std::fread(ids.data(), sizeof(llama_token), count, stdin) != count) return false;
  decode(vocab, ids, flags);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  const llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  for (int request = std::getchar(); request != EOF; request = std::getchar()) {
    if (!serve_one(vocab, request)) return 1;
  }
  return 0;
}
