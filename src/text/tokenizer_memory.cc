// What a tokenizer takes in memory, known before it is built. The sum follows the members of Vocab,
// SpecialMatcher and the two tokenizers; the memory test of the whole program holds it to what is measured.
#include <algorithm>
#include <bit>

#include "format/gguf.h"
#include "text/tokenizer.h"

namespace isthmus {
namespace {

// A hash table of at most half load, of slots of `slot` bytes.
uint64_t table_bytes(uint64_t entries, uint64_t slot) {
  return std::bit_ceil(std::max<uint64_t>(entries * 2, 8)) * slot;
}

uint64_t count_of(const GgufFile& file, const char* key) {
  const auto count = file.count_of(key);
  return count.ok() ? *count : 0;
}

// Control and user-defined tokens: their spellings are states of two automata, each with a node and an edge.
uint64_t special_bytes(const GgufFile& file, uint64_t spelling) {
  constexpr uint64_t kState = 28;
  const auto kinds = file.get_ints("tokenizer.ggml.token_type");
  if (!kinds.ok()) return 0;
  const auto special = std::ranges::count_if(*kinds, [](int64_t kind) {
    return kind == static_cast<int64_t>(TokenKind::kControl) ||
           kind == static_cast<int64_t>(TokenKind::kUserDefined);
  });
  return 2 * static_cast<uint64_t>(special) * spelling * kState;
}

}  // namespace

uint64_t Tokenizer::memory_bytes(const GgufFile& file) {
  const uint64_t tokens = count_of(file, "tokenizer.ggml.tokens");
  const auto raw = file.raw("tokenizer.ggml.tokens");
  if (tokens == 0 || !raw.ok()) return 0;
  const uint64_t text = raw->size() - std::min<uint64_t>(raw->size(), tokens * sizeof(uint64_t));
  const uint64_t spellings = 2 * (text + tokens * sizeof(size_t));  // as stored, and as the text they give
  const uint64_t index = table_bytes(tokens, 8) + tokens * sizeof(TokenKind);
  const uint64_t merges = count_of(file, "tokenizer.ggml.merges");
  // Byte-level: a table of pairs. SentencePiece: a rank per token and a set of neighbours.
  const uint64_t joins = merges > 0 ? table_bytes(merges, 16) : tokens * 4 + (uint64_t{1} << 18);
  return spellings + index + joins + special_bytes(file, text / tokens + 1);
}

}  // namespace isthmus
