// The tokenizers of real models against ids of llama.cpp and Hugging Face. ISTHMUS_TEST_MODELS names the
// folder with smollm2.gguf, gemma3.gguf and qwen05.gguf; without it these tests fail.
#include <cstdlib>
#include <ctime>
#include <map>

#include "corpus.h"
#include "format/gguf.h"
#include "text/utf8.h"

namespace isthmus {
namespace {

struct Model {
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
};

Result<Model> load(const std::string& name) {
  const char* folder = std::getenv("ISTHMUS_TEST_MODELS");
  if (folder == nullptr) return not_found("set ISTHMUS_TEST_MODELS to the folder of the test models");
  ISTHMUS_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(std::string(folder) + "/" + name + ".gguf"));
  ISTHMUS_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::from_gguf(file));
  return Model{std::move(file), std::move(tokenizer)};
}

class RealModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = load(GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    model_.emplace(std::move(loaded).value());
  }
  const Tokenizer& tokenizer() const { return *model_->tokenizer; }

 private:
  std::optional<Model> model_;
};

TEST_P(RealModel, CorpusGivesTheReferenceIds) {
  const std::map<std::string, size_t> different = {{"smollm2", 14}, {"qwen05", 8}, {"gemma3", 0}};
  testing::expect_rows(tokenizer(), testing::read_json_gz(std::string(GetParam()) + ".json.gz"), 1000,
                       different.at(GetParam()));
}

TEST_P(RealModel, MixedTextGivesTheReferenceIdsAndComesBack) {
  const auto truth = testing::read_json_gz("mixed_text.json.gz");
  const auto text = truth["text"].get<std::string>();
  const auto ids = tokenizer().encode(text, Specials::kAsText, true);
  const auto want = truth[GetParam()].get<std::vector<TokenId>>();  // at most the first 512
  ASSERT_TRUE(want.size() == ids.size() || (want.size() == 512 && ids.size() > 512));
  EXPECT_EQ(std::vector<TokenId>(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(want.size())), want);
  EXPECT_EQ(tokenizer().decode(ids, false), text);
}

TEST_P(RealModel, StreamingEveryTokenGivesWholeCharacters) {
  for (size_t first = 0; first < tokenizer().vocab_size(); first += 997) {
    StreamDecoder decoder(tokenizer());
    std::vector<TokenId> ids;
    std::string streamed;
    for (size_t id = first; id < std::min(first + 50, tokenizer().vocab_size()); ++id) {
      ids.push_back(static_cast<TokenId>(id));
      streamed += decoder.push(ids.back());
    }
    streamed += decoder.finish();
    std::string want;
    tok::utf8_mend(tokenizer().decode(ids, false), true, want);
    ASSERT_EQ(streamed, want) << "from token " << first;
  }
}

TEST_P(RealModel, OneMebibyteOfOneCharacterTakesUnderASecond) {
  // The sanitizers slow this code down some tenfold; linear it must stay there too.
  const double limit = std::getenv("ISTHMUS_SANITIZED") != nullptr ? 20.0 : 1.0;
  for (const std::string piece : {"a", " ", "\n", "\u00e9", "\U0001F600", "7", ".", "'", "'s", "\u4e2d"}) {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += piece;
    const std::clock_t start = std::clock();  // processor time: the machine may be busy
    const auto ids = tokenizer().encode(text, Specials::kAsText, false);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_EQ(tokenizer().decode(ids, false), text);
    EXPECT_LT(seconds, limit) << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel, ::testing::Values("smollm2", "qwen05", "gemma3"),
                         [](const auto& param) { return std::string(param.param); });

// What llama.cpp calls end of generation (llama_vocab_is_eog), from oracle.py's run.
TEST(RealStopTokens, AsTheReference) {
  const auto stops = testing::read_json_gz("mixed_text.json.gz")["stops"];
  for (const char* name : {"smollm2", "qwen05", "gemma3"}) {
    const auto model = load(name);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_EQ(model->tokenizer->stop_tokens(), stops[name].get<std::vector<TokenId>>());
    EXPECT_FALSE(model->tokenizer->stop_tokens().empty());
  }
}

}  // namespace
}  // namespace isthmus
