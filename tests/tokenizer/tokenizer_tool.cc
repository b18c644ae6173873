// Encodes and decodes for the oracle script: the same line protocol as llama_tool.cc, answered by Isthmus.
//
// Usage: tokenizer_tool MODEL. Requests on stdin, all integers little-endian 32 bits: 'e' flags length bytes
// (flags: 1 parse special tokens, 2 add BOS and EOS), answered by a count and the ids; 'd' flags count ids
// (flags: 1 show special tokens), answered by a length and the bytes; 's', answered by the stop tokens like
// 'e'.
#include <cstdio>
#include <iostream>

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_tool MODEL\n";
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
