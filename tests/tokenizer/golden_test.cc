// Small vocabularies under every pre-tokenizer, against ids that llama.cpp and, for the byte-level ones,
// Hugging Face gave (make_tiny.py).
#include "corpus.h"
#include "format/gguf.h"
#include "text/vocab_tokenizer.h"

namespace isthmus {
namespace {

Result<GgufFile> open(const char* name) {
  return GgufFile::open(std::string(ISTHMUS_SOURCE_DIR) + "/tests/tokenizer/data/" + name);
}

TEST(GoldenIds, ByteLevelBpeUnderEveryPreTokenizer) {
  const auto file = open("tiny_bpe.gguf");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto golden = testing::read_json_gz("tiny.json.gz");
  for (const char* pre : {"gpt-2", "smollm", "qwen2", "llama-bpe", "default"}) {
    auto spec = tok::read_vocab_spec(*file);
    ASSERT_TRUE(spec.ok()) << spec.status().to_string();
    spec->pre = pre;
    const auto tokenizer = tok::make_tokenizer(*spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    testing::expect_rows(**tokenizer, golden[pre], 150, 0);
  }
}

TEST(GoldenIds, SentencePieceWithSpacePrefix) {
  const auto file = open("tiny_spm.gguf");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto tokenizer = Tokenizer::from_gguf(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  testing::expect_rows(**tokenizer, testing::read_json_gz("tiny.json.gz")["spm"], 150, 0);
}

}  // namespace
}  // namespace isthmus
