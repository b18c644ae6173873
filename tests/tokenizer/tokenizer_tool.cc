// Encodes and decodes for the oracle script, and measures speed.
//
// Usage: tokenizer_tool MODEL --bench TEXTFILE prints the load time, MB/s (best of five, processor time) on
// the text and on 1 MiB of single characters. Without --bench it serves requests, as llama_tool.cc does for
// llama.cpp. Requests on stdin, all integers little-endian 32 bits: 'e' flags length bytes (flags: 1 parse
// special tokens, 2 add BOS and EOS), answered by a count and the ids; 'd' flags count ids (flags: 1 show
// special tokens), answered by a length and the bytes; 's', answered by the stop tokens like 'e'.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "format/gguf.h"
#include "text/tokenizer.h"

namespace {

using isthmus::TokenId;

bool read_u32(uint32_t& value) { return std::fread(&value, sizeof value, 1, stdin) == 1; }

template <class T>
bool read_many(uint32_t count, std::vector<T>& out) {
  out.resize(count);
  return std::fread(out.data(), sizeof(T), count, stdin) == count;
}

void answer(const void* data, size_t count, size_t size) {
  const auto n = static_cast<uint32_t>(count);
  std::fwrite(&n, sizeof n, 1, stdout);
  std::fwrite(data, size, count, stdout);
  std::fflush(stdout);
}

bool serve_one(const isthmus::Tokenizer& tokenizer, int request) {
  if (request == 's') {
    answer(tokenizer.stop_tokens().data(), tokenizer.stop_tokens().size(), sizeof(TokenId));
    return true;
  }
  uint32_t flags, count;
  if (!read_u32(flags) || !read_u32(count)) return false;
  if (request == 'e') {
    std::vector<char> text;
    if (!read_many(count, text)) return false;
    const auto specials = (flags & 1) != 0 ? isthmus::Specials::kParse : isthmus::Specials::kAsText;
    const auto ids = tokenizer.encode({text.data(), text.size()}, specials, (flags & 2) != 0);
    answer(ids.data(), ids.size(), sizeof(TokenId));
    return true;
  }
  std::vector<TokenId> ids;
  if (request != 'd' || !read_many(count, ids)) return false;
  const std::string text = tokenizer.decode(ids, (flags & 1) != 0);
  answer(text.data(), text.size(), 1);
  return true;
}

// Processor time of `work`, in seconds: a busy machine changes it less than the clock on the wall.
template <class Work>
double seconds(const Work& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double encode_seconds(const isthmus::Tokenizer& tokenizer, const std::string& text, int repeats) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    best = std::min(best,
                    seconds([&] { return tokenizer.encode(text, isthmus::Specials::kParse, false).size(); }));
  }
  return best;
}

int bench(const char* model, const char* text_path) {
  const auto file = isthmus::GgufFile::open(model);
  if (!file.ok()) return 1;
  std::unique_ptr<isthmus::Tokenizer> tokenizer;
  for (int i = 0; i < 3; ++i) {
    const double load = seconds([&] {
      auto made = isthmus::Tokenizer::from_gguf(*file);
      if (made.ok()) tokenizer = std::move(made).value();
    });
    if (!tokenizer) return 1;
    std::printf("%s: made in %.1f ms\n", tokenizer->name().c_str(), load * 1e3);
  }
  std::ifstream in(text_path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const double spent = encode_seconds(*tokenizer, text, 5);
  std::printf("text: %.1f MB/s (%zu bytes)\n", static_cast<double>(text.size()) / spent / 1e6, text.size());
  for (const std::string piece : {"a", " ", "\n", "\u00e9", "\U0001F600", "7", ".", "'", "\u4e2d", "\xFF"}) {
    std::string same;
    while (same.size() < (size_t{1} << 20)) same += piece;
    std::printf("1 MiB of U+%02x...: %.0f ms\n", static_cast<uint8_t>(piece[0]),
                encode_seconds(*tokenizer, same, 1) * 1e3);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[2]) == "--bench") return bench(argv[1], argv[3]);
  if (argc != 2) {
    std::cerr << "usage: tokenizer_tool MODEL [--bench TEXTFILE]\n";
    return 2;
  }
  const auto file = isthmus::GgufFile::open(argv[1]);
  if (!file.ok()) {
    std::cerr << file.status().to_string() << '\n';
    return 1;
  }
  const auto tokenizer = isthmus::Tokenizer::from_gguf(*file);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().to_string() << '\n';
    return 1;
  }
  for (int request = std::getchar(); request != EOF; request = std::getchar()) {
    if (!serve_one(**tokenizer, request)) return 1;
  }
  return 0;
}
