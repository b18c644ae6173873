// Loading, facts, tokens, decoder, chat templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "capi_testing.h"

namespace isthmus_capi_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CapiModel, BadFilesAreTypedErrors) {
  EXPECT_EQ(code_of([] { isthmus::Model("no/such/file.gguf"); }), ISTHMUS_NOT_FOUND);
  EXPECT_THAT(message_of([] { isthmus::Model("no/such/file.gguf"); }), HasSubstr("no/such/file.gguf"));
  EXPECT_NE(code_of([] { isthmus::Model(""); }), ISTHMUS_OK);
  const auto path = std::filesystem::path(::testing::TempDir()) / "bad.gguf";
  std::ofstream(path) << "not a model";
  EXPECT_EQ(code_of([&] { isthmus::Model(path.string()); }), ISTHMUS_CORRUPT);
  EXPECT_NE(code_of([&] { isthmus::Model(path.parent_path().string()); }), ISTHMUS_OK);
}

TEST(CapiModel, OptionsOutOfRangeAreNamed) {
  const auto load = [](auto change) {
    auto options = small_options();
    change(options);
    return message_of([&] { isthmus::Model(tiny("llama"), options); });
  };
  EXPECT_THAT(load([](auto& o) { o.precision = 9; }), HasSubstr("options.precision"));
  EXPECT_THAT(load([](auto& o) { o.kv_type = -1; }), HasSubstr("options.kv_type"));
  EXPECT_THAT(load([](auto& o) { o.threads = 100000; }), HasSubstr("options.threads"));
  EXPECT_THAT(load([](auto& o) { o.sequences = 0; }), HasSubstr("options.sequences"));
  EXPECT_THAT(load([](auto& o) { o.tree_tokens = SIZE_MAX; }), HasSubstr("options.tree_tokens"));
  EXPECT_THAT(load([](auto& o) { o.draft_tokens = 65; }), HasSubstr("options.draft_tokens"));
  EXPECT_THAT(load([](auto& o) { o.context = SIZE_MAX; }), HasSubstr("context"));
  EXPECT_THAT(load([](auto& o) { o.chat_template = "{% if"; }), HasSubstr("chat template"));
}

TEST(CapiModel, MemoryLimitIsKeptBeforeLoading) {
  auto options = small_options();
  options.memory_limit = 1000;
  const auto load = [&] { isthmus::Model(tiny("llama"), options); };
  EXPECT_EQ(code_of(load), ISTHMUS_RESOURCE_EXHAUSTED);
  EXPECT_THAT(message_of(load), HasSubstr("memory limit"));
  options.memory_limit = 0;
  const isthmus_memory memory = isthmus::Model(tiny("llama"), options).memory();
  EXPECT_GT(memory.used, memory.weights);
}

TEST(CapiModel, LoadingReportsProgressAndCanBeCancelled) {
  struct Seen {
    isthmus::Cancel cancel;
    uint64_t calls = 0, done = 0, total = 0;
  } seen;
  auto options = small_options();
  options.progress_user = &seen;
  options.on_progress = [](void* user, uint64_t done, uint64_t total) {
    auto& s = *static_cast<Seen*>(user);
    EXPECT_GT(done, s.done);
    ++s.calls;
    s.done = done;
    s.total = total;
  };
  const isthmus::Model model(tiny("llama"), options);
  EXPECT_GT(seen.calls, 2U);
  EXPECT_EQ(seen.done, seen.total);
  options.on_progress = [](void* user, uint64_t, uint64_t) { static_cast<Seen*>(user)->cancel.set(); };
  isthmus::Limits limits;
  limits.cancel = &seen.cancel;
  EXPECT_EQ(code_of([&] { isthmus::Model(tiny("llama"), options, limits); }), ISTHMUS_CANCELLED);
}

TEST(CapiModel, Facts) {
  const isthmus::Model model(tiny("qwen2"), small_options());
  const isthmus_model_facts facts = model.facts();
  EXPECT_STREQ(facts.architecture, "qwen2");
  EXPECT_STREQ(facts.name, "tiny");
  EXPECT_STREQ(facts.tokenizer, "gpt2/gpt-2");
  EXPECT_EQ(facts.layers, 2U);
  EXPECT_EQ(facts.heads, 3U);
  EXPECT_EQ(facts.kv_heads, 1U);
  EXPECT_EQ(facts.vocab, 300U);
  EXPECT_EQ(facts.trained_context, 1024U);
  EXPECT_EQ(facts.context, 512U);
  EXPECT_EQ(facts.threads, 2U);
  EXPECT_EQ(facts.bos, 298);
  EXPECT_EQ(facts.eos, 299);
  EXPECT_EQ(facts.adds_bos, 0);
  EXPECT_EQ(facts.has_chat_template, 1);
  EXPECT_THAT(model.stop_tokens(), ElementsAre(299));
}

TEST(CapiModel, TokensAndText) {
  const isthmus::Model model(tiny("llama"), small_options());
  for (const std::string& text :
       {std::string(), std::string("Hello, world"), std::string("gr\xC3\xBC\xC3\x9F\x65"),
        std::string("a\0b", 3), std::string("\xFF\xFE broken")}) {
    const auto tokens = model.tokenize(text);
    std::string bytes;
    for (const auto token : tokens) bytes += model.piece(token);
    EXPECT_EQ(bytes, text);
    if (text.find('\xFF') == std::string::npos) {
      EXPECT_EQ(model.detokenize(tokens), text);
    }
  }
  EXPECT_GT(model.tokenize("<|end|>").size(), 1U);
  EXPECT_THAT(model.tokenize("<|end|>", ISTHMUS_PARSE_SPECIAL), ElementsAre(299));
  EXPECT_EQ(model.detokenize({299}), "");
  EXPECT_EQ(model.detokenize({299}, ISTHMUS_SHOW_SPECIAL), "<|end|>");
  EXPECT_EQ(code_of([&] { model.detokenize({300}); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { model.detokenize({-1}); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { model.piece(1 << 30); }), ISTHMUS_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { model.tokenize("x", ISTHMUS_SHOW_SPECIAL); }), ISTHMUS_INVALID_ARGUMENT);
  isthmus_token token = -1;
  EXPECT_EQ(isthmus_token_find(model.get(), "<|begin|>", 9, &token, nullptr), ISTHMUS_OK);
  EXPECT_EQ(token, 298);
  EXPECT_EQ(isthmus_token_find(model.get(), "<|none|>", 8, &token, nullptr), ISTHMUS_NOT_FOUND);
}

TEST(CapiModel, DecoderHoldsBackUnfinishedCharacters) {
  const isthmus::Model model(tiny("llama"), small_options());
  isthmus::Decoder decoder(model);
  const auto tokens = model.tokenize("\xE2\x82\xAC");  // one character of three bytes
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(decoder.push(tokens[0]), "");
  EXPECT_EQ(decoder.push(tokens[1]), "");
  EXPECT_EQ(decoder.push(tokens[2]), "\xE2\x82\xAC");
  EXPECT_EQ(decoder.push(tokens[0]), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(code_of([&] { decoder.push(-5); }), ISTHMUS_INVALID_ARGUMENT);
}

TEST(CapiModel, ChatTemplates) {
  const isthmus::Model model(tiny("llama"), small_options());
  const std::string messages = R"([{"role": "user", "content": "Hi <|end|>"}])";
  EXPECT_EQ(model.render_chat(messages), "<|im_start|>user\nHi <|end|><|im_end|>\n<|im_start|>assistant\n");
  isthmus::ChatOptions options;
  options.generation_prompt = 0;
  EXPECT_EQ(model.render_chat(messages, options), "<|im_start|>user\nHi <|end|><|im_end|>\n");
  // A control token's spelling inside a message stays text.
  const auto tokens = model.encode_chat(messages);
  EXPECT_THAT(tokens, ::testing::Not(::testing::Contains(299)));
  EXPECT_EQ(model.detokenize(tokens), model.render_chat(messages));
}

TEST(CapiModel, BadMessagesAreTypedErrors) {
  const isthmus::Model model(tiny("llama"), small_options());
  for (const std::string messages : {"", "[", "{}", "[]", "[1]", R"([{"content": "x"}])", "[\"\xFF\"]"}) {
    EXPECT_EQ(code_of([&] { model.render_chat(messages); }), ISTHMUS_INVALID_ARGUMENT) << messages;
  }
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(message_of([&] { model.render_chat(deep); }), HasSubstr("nested deeper"));
  isthmus::ChatOptions options;
  options.tools = "{}";
  options.tools_length = 2;
  const std::string good = R"([{"role": "user", "content": "x"}])";
  EXPECT_THAT(message_of([&] { model.render_chat(good, options); }), HasSubstr("options.tools"));

  auto without = small_options();
  without.chat_template = nullptr;
  const isthmus::Model plain(tiny("llama"), without);
  EXPECT_EQ(plain.facts().has_chat_template, 0);
  EXPECT_EQ(code_of([&] { plain.render_chat(good); }), ISTHMUS_FAILED_PRECONDITION);
}

}  // namespace
}  // namespace isthmus_capi_test
