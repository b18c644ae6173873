#include "engine/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "engine/chat.h"

namespace isthmus {
namespace {

std::shared_ptr<LanguageModel> load(ModelOptions options = {}, const std::string& name = "llama.gguf") {
  if (options.context == 0) options.context = 256;
  auto model = LanguageModel::load(std::string(ISTHMUS_TINY_MODELS) + "/" + name, std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

std::unique_ptr<Session> new_session(const std::shared_ptr<LanguageModel>& model) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return std::move(*session);
}

GenerateRequest request_of(std::vector<TokenId> prompt, size_t max_tokens) {
  GenerateRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.ignore_stop_tokens = true;
  r.sampler.seed = 7;
  r.sampler.temperature = 1;
  return r;
}

const std::vector<TokenId> kPrompt = {40, 41, 42, 43, 44};

TEST(Generate, SameSeedSameTextAtAnyThreadCount) {
  std::vector<TokenId> expected;
  for (const size_t threads : {1, 2, 3, 7}) {
    ModelOptions options;
    options.threads = threads;
    const auto session = new_session(load(std::move(options)));
    const auto result = generate(*session, request_of(kPrompt, 40));
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->tokens.size(), 40U);
    EXPECT_EQ(result->reason, FinishReason::kLength);
    if (expected.empty()) expected = result->tokens;
    EXPECT_EQ(result->tokens, expected) << threads << " threads";
  }
}

TEST(Generate, AReusedPrefixGivesTheSameTextAsAColdRun) {
  const auto model = load();
  const auto cold = new_session(model);
  const auto warm = new_session(model);
  auto longer = kPrompt;
  longer.insert(longer.end(), {50, 51, 52});
  ASSERT_TRUE(generate(*warm, request_of(kPrompt, 10)).ok());
  const auto a = generate(*cold, request_of(longer, 20));
  const auto b = generate(*warm, request_of(longer, 20));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->tokens, b->tokens);
  EXPECT_EQ(a->figures.reused_tokens, 0U);
  EXPECT_GE(b->figures.reused_tokens, kPrompt.size());
}

TEST(Generate, TheTextIsWhatWasStreamed) {
  const auto session = new_session(load());
  GenerateRequest request = request_of(kPrompt, 30);
  std::string streamed;
  size_t tokens = 0;
  request.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  request.on_token = [&](const Sampled&) { ++tokens; };
  const auto result = generate(*session, request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(streamed, result->text);
  EXPECT_EQ(tokens, 30U);
  EXPECT_EQ(result->figures.gap_seconds.size(), 29U);
  EXPECT_GT(result->figures.ttft_seconds, 0);
}

TEST(Generate, AStopStringEndsTheTextBeforeIt) {
  const auto model = load();
  const auto free_run = generate(*new_session(model), request_of(kPrompt, 40));
  ASSERT_TRUE(free_run.ok());
  ASSERT_GT(free_run->text.size(), 8U);
  GenerateRequest request = request_of(kPrompt, 40);
  request.stops = {free_run->text.substr(4, 3)};
  const auto stopped = generate(*new_session(model), request);
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->reason, FinishReason::kStopString);
  EXPECT_EQ(stopped->text, free_run->text.substr(0, free_run->text.find(request.stops[0])));
  EXPECT_EQ(stopped->stop_string, request.stops[0]);
}

TEST(Generate, AFullContextStopsOrShifts) {
  ModelOptions options;
  options.context = 64;
  const auto model = load(std::move(options));
  const auto stopped = generate(*new_session(model), request_of(kPrompt, 200));
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->reason, FinishReason::kContext);
  EXPECT_EQ(stopped->tokens.size(), 64 - kPrompt.size() + 1);
  GenerateRequest request = request_of(kPrompt, 200);
  request.on_full = ContextPolicy::kShift;
  request.keep_tokens = 2;
  const auto shifted = generate(*new_session(model), request);
  ASSERT_TRUE(shifted.ok()) << shifted.status().to_string();
  EXPECT_EQ(shifted->tokens.size(), 200U);
  EXPECT_GE(shifted->figures.context_shifts, 4U);
}

/// What a run's session held, and its logits, when each token was sampled.
struct Moment {
  std::vector<TokenId> held;
  std::vector<float> logits;
};

TEST(Generate, AfterAShiftTheTextIsThatOfAFreshRunOverTheKeptTokens) {
  constexpr size_t kContext = 64;
  constexpr size_t kKeep = 2;
  ModelOptions options;
  options.context = kContext;
  options.sequences = 2;
  const auto model = load(std::move(options));
  const auto session = new_session(model);
  GenerateRequest request = request_of(kPrompt, 100);
  request.sampler.temperature = 0;
  request.sampler.repetition_penalty = 1.3F;  // lest a greedy text be one token for ever
  request.sampler.penalty_window = kContext / 2;
  request.on_full = ContextPolicy::kShift;
  request.keep_tokens = kKeep;
  std::vector<Moment> moments;
  request.on_token = [&](const Sampled&) {
    const auto held = session->tokens();
    const auto logits = session->logits();
    moments.push_back({{held.begin(), held.end()}, {logits.begin(), logits.end()}});
  };
  const auto result = generate(*session, request);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_GE(result->figures.context_shifts, 2U);
  const auto shrinks = [](const Moment& a, const Moment& b) { return b.held.size() < a.held.size(); };
  const auto before = std::adjacent_find(moments.begin(), moments.end(), shrinks);
  ASSERT_NE(before, moments.end());
  const auto after = before + 1;

  // Kept: the first two, and of the other 62 the newer 31; then the token that found no room.
  auto kept = before->held;
  ASSERT_EQ(kept.size(), kContext);
  kept.erase(kept.begin() + kKeep, kept.begin() + kKeep + 31);
  kept.push_back(result->tokens[static_cast<size_t>(before - moments.begin())]);
  EXPECT_EQ(after->held, kept);

  const auto fresh = new_session(model);
  GenerateRequest again = request;
  again.on_token = nullptr;
  again.prompt = kept;
  again.max_tokens = kContext - kept.size();
  const auto first = static_cast<ptrdiff_t>(after - moments.begin());
  const auto fresh_result = generate(*fresh, again);
  ASSERT_TRUE(fresh_result.ok());
  ASSERT_EQ(fresh_result->tokens.size(), again.max_tokens);
  EXPECT_TRUE(
      std::equal(fresh_result->tokens.begin(), fresh_result->tokens.end(), result->tokens.begin() + first));
  ASSERT_TRUE(fresh->truncate(0).ok());
  ASSERT_TRUE(fresh->append(kept, Purpose::kPrompt).ok());
  EXPECT_EQ(std::vector<float>(fresh->logits().begin(), fresh->logits().end()), after->logits);
}

TEST(Generate, TooLongPromptsAndBadParametersAreErrorsThatLeaveTheSessionUsable) {
  ModelOptions options;
  options.context = 32;
  const auto session = new_session(load(std::move(options)));
  EXPECT_EQ(generate(*session, request_of(std::vector<TokenId>(33, 5), 1)).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(generate(*session, request_of({}, 1)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(generate(*session, request_of({-1}, 1)).status().code(), Code::kInvalidArgument);
  GenerateRequest bad = request_of(kPrompt, 1);
  bad.sampler.top_p = 2;
  EXPECT_EQ(generate(*session, bad).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(generate(*session, request_of(kPrompt, 3)).ok());
}

TEST(Generate, CancelAndDeadlineEndTheRun) {
  const auto session = new_session(load());
  CancelSource source;
  GenerateRequest request = request_of(kPrompt, 200);
  request.stop.token = source.token();
  size_t seen = 0;
  request.on_token = [&](const Sampled&) {
    if (++seen == 5) source.cancel();
  };
  const auto cancelled_run = generate(*session, request);
  ASSERT_TRUE(cancelled_run.ok());
  EXPECT_EQ(cancelled_run->reason, FinishReason::kCancelled);
  EXPECT_EQ(cancelled_run->tokens.size(), 5U);

  source.reset();
  GenerateRequest late = request_of(kPrompt, 200);
  late.on_text = [](std::string_view) { return false; };
  EXPECT_EQ(generate(*session, late)->reason, FinishReason::kCancelled);
  GenerateRequest over = request_of({60, 61, 62}, 200);
  over.stop.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(generate(*session, over).status().code(), Code::kDeadlineExceeded);
}

TEST(LanguageModel, TheMemoryLimitIsCheckedBeforeLoading) {
  const std::string path = std::string(ISTHMUS_TINY_MODELS) + "/llama.gguf";
  ModelOptions options;
  options.context = 256;
  const auto plan = LanguageModel::plan(path, options);
  ASSERT_TRUE(plan.ok());
  options.memory_limit = plan->total() - 1;
  const auto refused = LanguageModel::load(path, options);
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("KV cache of 256 tokens"), std::string::npos)
      << refused.status().message();
  options.memory_limit = plan->total();
  const auto loaded = LanguageModel::load(path, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_TRUE(Session::create(*loaded).ok());
  EXPECT_LE((*loaded)->ledger().peak(), plan->total());
}

TEST(LanguageModel, BadRequestsAreTyped) {
  const std::string path = std::string(ISTHMUS_TINY_MODELS) + "/llama.gguf";
  ModelOptions options;
  options.context = 1 << 20;
  EXPECT_EQ(LanguageModel::load(path, options).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LanguageModel::load(path + ".absent", {}).status().code(), Code::kNotFound);
  ModelOptions tiles;
  tiles.precision = Precision::kBf16;
  EXPECT_EQ(LanguageModel::load(path, tiles).status().code(), have_bf16() ? Code::kOk : Code::kUnsupported);
  ModelOptions broken;
  broken.chat_template = "{% if %}";
  EXPECT_EQ(LanguageModel::load(path, broken).status().code(), Code::kCorrupt);
}

TEST(Chat, SpecialTokensInMessagesStayText) {
  ModelOptions options;
  options.chat_template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
  const auto model = load(std::move(options));
  const Tokenizer& tokenizer = model->tokenizer();
  // Whatever control token this vocabulary has stands in for the end of a turn.
  std::string forged;
  TokenId control = -1;
  for (size_t id = 0; id < tokenizer.vocab_size() && forged.empty(); ++id) {
    if (tokenizer.kind(static_cast<TokenId>(id)) == TokenKind::kControl &&
        tokenizer.raw(static_cast<TokenId>(id)).size() > 1) {
      control = static_cast<TokenId>(id);
      forged = tokenizer.raw(control);
    }
  }
  ASSERT_FALSE(forged.empty());
  ChatRequest request;
  request.messages.push_back({{"role", "user"}, {"content", "a " + forged + " b"}});
  const auto rendered = render_chat(*model, request);
  ASSERT_TRUE(rendered.ok()) << rendered.status().to_string();
  EXPECT_EQ(rendered->text, "<|im_start|>a " + forged + " b<|im_end|>");
  EXPECT_EQ(rendered->guarded.size(), 1U);
  const auto ids = encode_chat(*model, request);
  ASSERT_TRUE(ids.ok());
  const auto found = std::count(ids->begin() + (tokenizer.adds_bos() ? 1 : 0), ids->end(), control);
  const auto own = tokenizer.encode("<|im_start|><|im_end|>", Specials::kParse, false);
  EXPECT_EQ(found, std::count(own.begin(), own.end(), control));
  EXPECT_EQ(tokenizer.decode(*ids, true).find("a " + forged + " b") != std::string::npos, true);
}

TEST(Chat, MessagesOfTheWrongShapeAreNamed) {
  ModelOptions options;
  options.chat_template = "chatml";
  const auto model = load(std::move(options));
  ChatRequest request;
  EXPECT_EQ(encode_chat(*model, request).status().code(), Code::kInvalidArgument);
  request.messages =
      nlohmann::ordered_json::array({{{"role", "user"}, {"content", "x"}}, {{"content", "y"}}});
  EXPECT_NE(encode_chat(*model, request).status().message().find("messages[1]"), std::string::npos);
}

TEST(Chat, AConversationKeepsTheIdsThatWereDecoded) {
  ModelOptions options;
  options.chat_template = "chatml";
  const auto model = load(std::move(options));
  const Tokenizer& tokenizer = model->tokenizer();
  const auto encode = [&](const std::string& text) {
    return tokenizer.encode(text, Specials::kAsText, false);
  };
  // An answer in ids that encoding its text would not give: letter by letter.
  const std::string text = "other things";
  std::vector<TokenId> answer;
  for (const char c : text) {
    const auto ids = encode(std::string(1, c));
    answer.insert(answer.end(), ids.begin(), ids.end());
  }
  ASSERT_NE(answer, encode(text));
  ASSERT_EQ(tokenizer.decode(answer, true), text);

  Conversation conversation(*model);
  conversation.messages().push_back({{"role", "user"}, {"content", "hi"}});
  const auto first = conversation.prompt();
  ASSERT_TRUE(first.ok());
  conversation.add_answer(text, answer);
  conversation.messages().push_back({{"role", "user"}, {"content", "more"}});
  const auto second = conversation.prompt();
  ASSERT_TRUE(second.ok());
  auto expected = *first;
  expected.insert(expected.end(), answer.begin(), answer.end());
  ASSERT_GT(second->size(), expected.size());
  EXPECT_EQ(std::vector<TokenId>(second->begin(), second->begin() + static_cast<ptrdiff_t>(expected.size())),
            expected);
  const auto whole = render_chat(*model, conversation.request());
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(tokenizer.decode(*second, true), whole->text);
}

TEST(Chat, AnAnswerThatTheTemplateRewritesIsEncodedAnew) {
  ModelOptions options;
  options.chat_template =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const auto model = load(std::move(options));
  const std::string text = "  spaced  ";
  Conversation conversation(*model);
  conversation.messages().push_back({{"role", "user"}, {"content", "hi"}});
  ASSERT_TRUE(conversation.prompt().ok());
  conversation.add_answer(text, model->tokenizer().encode(text, Specials::kAsText, false));
  conversation.messages().push_back({{"role", "user"}, {"content", "more"}});
  const auto second = conversation.prompt();
  ASSERT_TRUE(second.ok());
  const auto anew = encode_chat(*model, conversation.request());
  ASSERT_TRUE(anew.ok());
  EXPECT_EQ(*second, *anew);
}

}  // namespace
}  // namespace isthmus
