// Prompts made of modules: null settings are ordinary prompts, isolated modules are a masked text, what is
// stored comes back bit for bit, and other techniques go with it.
#include "engine/module_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/generate.h"
#include "engine/testing/memory_tier.h"
#include "model/testing/plain_forward.h"

namespace isthmus {
namespace {

using ::testing::HasSubstr;
using testing::MemoryTier;
using testing::PlainModel;
using testing::quick_digest;

constexpr const char* kModuleSchema =
    "<schema name='s'>The first words of all. "
    "<module name='a'>Some text about apples, which grow on trees and are eaten in autumn. "
    "<parameter name='n' length='40'/> Then more of the same module.</module>"
    "<union><module name='b'>A text about rivers that flow to the sea through green valleys.</module>"
    "<module name='c'>Mountains.</module></union>"
    "<module name='d'>The last module has a few words, too, and they are rather dull.</module></schema>";
constexpr const char* kModulePrompt = "<prompt><a n='seven'/><b/><d/>And now the question.</prompt>";

struct ModelSettings {
  Precision precision = Precision::kDefault;
  KvType kv_type = KvType::kF16;
  std::string bits = "16";
  EvictionOptions eviction = {};
  std::string chat_template = {};
};

std::shared_ptr<LanguageModel> schema_model(const std::string& name, const ModelSettings& settings = {}) {
  ModelOptions options;
  options.context = 1024;
  options.sequences = 2;
  options.precision = settings.precision;
  options.kv_type = settings.kv_type;
  options.eviction = settings.eviction;
  options.chat_template = settings.chat_template;
  options.draft_tokens = 4;
  auto codec = parse_kv_bits(settings.bits);
  EXPECT_TRUE(codec.ok());
  options.kv_codec = *codec;
  options.kv_codec.residual = 64;
  auto model = LanguageModel::load(ISTHMUS_TINY_MODELS "/" + name + ".gguf", std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

PromptSchema schema_of(const std::string& xml) {
  auto out =
      PromptSchema::parse(xml, [](const std::string&) -> Result<std::string> { return not_found(""); });
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return std::move(*out);
}

std::unique_ptr<ModuleCache> cache_of(const std::shared_ptr<LanguageModel>& model, const std::string& xml,
                                      ModuleCacheOptions options = {}) {
  auto out = ModuleCache::create(model, schema_of(xml), std::move(options));
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? std::move(*out) : nullptr;
}

std::unique_ptr<Session> session_of(const std::shared_ptr<LanguageModel>& model) {
  auto out = Session::create(model);
  EXPECT_TRUE(out.ok());
  return std::move(*out);
}

ComposedPrompt composed_of(const ModuleCache& cache, const std::string& prompt) {
  const auto parsed = SchemaPrompt::parse(prompt);
  EXPECT_TRUE(parsed.ok());
  auto out = cache.choose(*parsed);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_TRUE(cache.finish(parsed->text, 0, *out).ok());
  return std::move(*out);
}

/// Logits after the prompt, put together in `session`.
std::vector<float> composed_logits(ModuleCache& cache, Session& session, const ComposedPrompt& composed,
                                   const RepairOptions& repair = {}, ComposeFigures* figures = nullptr) {
  const Status ready = cache.prepare(composed, session);
  EXPECT_TRUE(ready.ok()) << ready.to_string();
  const auto done = session.compose(cache.parts(composed), repair);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  if (figures != nullptr && done.ok()) *figures = *done;
  return {session.logits().begin(), session.logits().end()};
}

std::vector<float> plain_logits(const std::shared_ptr<LanguageModel>& model,
                                std::span<const TokenId> tokens) {
  const auto session = session_of(model);
  EXPECT_TRUE(session->append(tokens, Purpose::kPrompt).ok());
  return {session->logits().begin(), session->logits().end()};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum = std::max(sum, std::abs(double{a[i]} - double{b[i]}));
  return sum;
}

RepairOptions repair_of(const std::string& text) {
  const auto out = parse_repair(text);
  EXPECT_TRUE(out.ok());
  return *out;
}

TEST(ModuleCacheTest, ASchemaThatIsAllOfThePromptIsAnOrdinaryPrompt) {
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const auto model = schema_model(name);
    const auto cache =
        cache_of(model, "<schema name='s'>All the text there is, and no module at all.</schema>");
    const auto session = session_of(model);
    const ComposedPrompt composed = composed_of(*cache, " A question?");
    ComposeFigures figures;
    EXPECT_EQ(composed_logits(*cache, *session, composed, {}, &figures), plain_logits(model, composed.tokens))
        << name;
    EXPECT_EQ(session->kv_figures().exactness, Exactness::kExact);
    EXPECT_EQ(figures.copied, composed.tokens.size() - composed.tail);
    EXPECT_EQ(std::vector<TokenId>(session->tokens().begin(), session->tokens().end()), composed.tokens);
  }
}

TEST(ModuleCacheTest, RepairOfAllIsAnOrdinaryPromptWhereNothingIsLeftOut) {
  const std::string xml =
      "<schema name='s'>Some words. <module name='a'>More words about something.</module>"
      "<module name='b'>And a second part, which follows.</module></schema>";
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const auto model = schema_model(name);
    const auto session = session_of(model);
    for (const ModuleView view : {ModuleView::kIsolated, ModuleView::kAnchored, ModuleView::kWhole}) {
      ModuleCacheOptions options;
      options.view = view;
      options.places = ModulePlaces::kSchema;
      const auto cache = cache_of(model, xml, options);
      const ComposedPrompt composed = composed_of(*cache, "<prompt><a/><b/>A question?</prompt>");
      const auto want = plain_logits(model, composed.tokens);
      for (const char* repair : {"all", "first:100", "deviating:1"}) {
        EXPECT_EQ(composed_logits(*cache, *session, composed, repair_of(repair)), want)
            << name << " " << repair;
      }
      const double apart = distance(composed_logits(*cache, *session, composed), want);
      if (view == ModuleView::kWhole) {
        EXPECT_EQ(apart, 0) << "each part saw all before it";
      } else {
        EXPECT_GT(apart, 1e-4) << name;
        EXPECT_EQ(session->kv_figures().exactness, Exactness::kComposed);
      }
    }
  }
}

/// What each token of a composed prompt sees, from the layout alone.
class SchemaMask {
 public:
  SchemaMask(const ModuleCache& cache, const ComposedPrompt& composed) {
    for (const auto& part : composed.parts) {
      const size_t n = part.run == SchemaLayout::kNone ? part.argument.size()
                                                       : cache.layout().runs()[part.run].tokens.size();
      for (size_t i = 0; i < n; ++i) {
        positions.push_back(part.position + i);
        runs.push_back(part.run);
      }
    }
    for (size_t i = 0; i < composed.tail; ++i) {
      positions.push_back(cache.layout().length() + i);
      runs.push_back(SchemaLayout::kNone);
    }
    for (size_t run = 0; run < cache.layout().runs().size(); ++run) {
      seen.push_back(cache.layout().seen(run, cache.options().view));
      seen.back().push_back(run);
    }
  }
  bool operator()(size_t i, size_t j) const {
    if (runs[i] == SchemaLayout::kNone) return true;
    return std::find(seen[runs[i]].begin(), seen[runs[i]].end(), runs[j]) != seen[runs[i]].end();
  }

  std::vector<size_t> positions;
  std::vector<size_t> runs;
  std::vector<std::vector<size_t>> seen;
};

TEST(ModuleCacheTest, ModulesAreAMaskedText) {
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const auto model = schema_model(name, {Precision::kReference, KvType::kF32});
    const PlainModel plain(std::string(ISTHMUS_TINY_MODELS) + "/" + name + ".gguf", model->config());
    const auto session = session_of(model);
    for (const ModuleView view : {ModuleView::kIsolated, ModuleView::kAnchored, ModuleView::kWhole}) {
      ModuleCacheOptions options;
      options.view = view;
      options.places = ModulePlaces::kSchema;
      const auto cache = cache_of(model, kModuleSchema, options);
      const ComposedPrompt composed = composed_of(*cache, kModulePrompt);
      const auto got = composed_logits(*cache, *session, composed);
      const SchemaMask mask(*cache, composed);
      const auto want =
          plain.logits(composed.tokens, mask.positions, [&](size_t i, size_t j) { return mask(i, j); });
      for (size_t t = 0; t < got.size(); ++t)
        ASSERT_NEAR(got[t], want.back()[t], 3e-4) << name << module_view_name(view);
    }
  }
}

/// Distances between tokens decide, so that a module read apart can be turned to any position.
TEST(ModuleCacheTest, PackedModulesAreAMaskedTextWithoutGaps) {
  const std::string xml =
      "<schema name='s'>Some words. <module name='x'>Left out here, so that others move.</module>"
      "<module name='a'>More words about something.</module><union><module name='b'>Second.</module>"
      "<module name='c'>The other one, which is longer.</module></union></schema>";
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const auto model = schema_model(name, {Precision::kReference, KvType::kF32});
    const PlainModel plain(std::string(ISTHMUS_TINY_MODELS) + "/" + name + ".gguf", model->config());
    const auto session = session_of(model);
    ModuleCacheOptions options;
    options.view = ModuleView::kIsolated;
    const auto cache = cache_of(model, xml, options);
    for (const char* prompt : {"<prompt><a/><b/>Why?</prompt>", "<prompt><x/><a/><c/>Why?</prompt>"}) {
      const ComposedPrompt composed = composed_of(*cache, prompt);
      const auto got = composed_logits(*cache, *session, composed);
      EXPECT_FALSE(session->kv().gaps());
      const SchemaMask mask(*cache, composed);
      std::vector<size_t> positions(composed.tokens.size());
      std::iota(positions.begin(), positions.end(), 0U);
      const auto want =
          plain.logits(composed.tokens, positions, [&](size_t i, size_t j) { return mask(i, j); });
      for (size_t t = 0; t < got.size(); ++t) ASSERT_NEAR(got[t], want.back()[t], 3e-4) << name << prompt;
    }
  }
}

TEST(ModuleCacheTest, RepairOfAllPackedIsAnyOrdinaryPrompt) {
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const auto model = schema_model(name);
    const auto session = session_of(model);
    const auto cache = cache_of(model, kModuleSchema);
    for (const char* prompt : {kModulePrompt, "<prompt><c/>Why?</prompt>", "Why?"}) {
      const ComposedPrompt composed = composed_of(*cache, prompt);
      EXPECT_EQ(composed_logits(*cache, *session, composed, repair_of("all")),
                plain_logits(model, composed.tokens));
    }
  }
}

TEST(ModuleCacheTest, RepairComesNearerToTheWholeText) {
  const auto model = schema_model("llama");
  const auto session = session_of(model);
  ModuleCacheOptions options;
  options.view = ModuleView::kIsolated;
  const auto cache = cache_of(model, kModuleSchema, options);
  const ComposedPrompt composed = composed_of(*cache, kModulePrompt);
  const auto want = plain_logits(model, composed.tokens);
  const double none = distance(composed_logits(*cache, *session, composed), want);
  ComposeFigures figures;
  const double most =
      distance(composed_logits(*cache, *session, composed, repair_of("deviating:0.9"), &figures), want);
  EXPECT_LT(most, none);
  EXPECT_GT(figures.recomputed, 0.8);
  (void)composed_logits(*cache, *session, composed, repair_of("first:4"), &figures);
  EXPECT_EQ(figures.repaired, 4U * 4) << "of all runs but the first";
  EXPECT_LT(figures.recomputed, 0.2);
}

TEST(ModuleCacheTest, StoredModulesHaveTheSameBits) {
  const auto model = schema_model("qwen2");
  const auto session = session_of(model);
  MemoryTier tier;
  ModuleCacheOptions options;
  options.tier = &tier;
  options.digest = quick_digest;
  const auto first = cache_of(model, kModuleSchema, options);
  const ComposedPrompt composed = composed_of(*first, kModulePrompt);
  const auto want = composed_logits(*first, *session, composed);
  EXPECT_GT(first->figures().saved_tokens, 0U);
  EXPECT_EQ(first->figures().stored_tokens, 0U);
  const auto second = cache_of(model, kModuleSchema, options);
  EXPECT_EQ(composed_logits(*second, *session, composed), want);
  EXPECT_EQ(second->figures().computed_tokens, 0U) << second->figures().reason;
  EXPECT_EQ(second->figures().stored_tokens, first->figures().saved_tokens);
  // The other member of the union is read, and nothing else.
  (void)composed_logits(*second, *session, composed_of(*second, "<prompt><a/><c/><d/>And?</prompt>"));
  EXPECT_EQ(second->figures().computed_tokens, second->layout().runs()[4].tokens.size());
  // Another view, another app and another text are other modules.
  const auto computes_all = [&](const std::string& xml, ModuleCacheOptions other) {
    const auto cache = cache_of(model, xml, std::move(other));
    (void)composed_logits(*cache, *session, composed_of(*cache, kModulePrompt));
    return cache->figures().stored_tokens;
  };
  ModuleCacheOptions whole = options;
  whole.view = ModuleView::kWhole;
  EXPECT_EQ(computes_all(kModuleSchema, whole), 0U);
  ModuleCacheOptions salted = options;
  salted.salt = "another app";
  EXPECT_EQ(computes_all(kModuleSchema, salted), 0U);
  std::string other = kModuleSchema;
  other.replace(other.find("The first"), 9, "Other fir");
  EXPECT_EQ(computes_all(other, options), 0U);
}

TEST(ModuleCacheTest, WhatTheTierLacksOrGarblesIsReadAnew) {
  const auto model = schema_model("llama");
  const auto session = session_of(model);
  MemoryTier tier;
  ModuleCacheOptions options;
  options.tier = &tier;
  options.digest = quick_digest;
  const auto first = cache_of(model, kModuleSchema, options);
  const ComposedPrompt composed = composed_of(*first, kModulePrompt);
  const auto want = composed_logits(*first, *session, composed);
  for (auto& [key, bytes] : tier.by_key) bytes[bytes.size() / 2] ^= std::byte{1};
  const auto second = cache_of(model, kModuleSchema, options);
  EXPECT_EQ(composed_logits(*second, *session, composed), want);
  EXPECT_EQ(second->figures().stored_tokens, 0U);
  EXPECT_GT(tier.refusals, 0U);
  tier.by_key.clear();
  tier.full = true;
  const auto third = cache_of(model, kModuleSchema, options);
  EXPECT_EQ(composed_logits(*third, *session, composed), want);
  EXPECT_THAT(third->figures().reason, HasSubstr("full"));
}

TEST(ModuleCacheTest, AnswersAndFiguresComeFromComposedPrompts) {
  const auto model = schema_model("llama", {.chat_template = "chatml"});
  const auto session = session_of(model);
  const std::string xml =
      "<schema name='s' role='system'>Be brief.<module name='a'> Apples are red.</module></schema>";
  const auto cache = cache_of(model, xml);
  const ComposedPrompt composed = composed_of(*cache, "<prompt><a/>Which colour?</prompt>");
  // The text is that of the same messages without a schema.
  ChatRequest chat;
  chat.messages.push_back({{"role", "system"}, {"content", "Be brief. Apples are red."}});
  chat.messages.push_back({{"role", "user"}, {"content", "Which colour?"}});
  const auto ids = encode_chat(*model, chat);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(model->tokenizer().decode(composed.tokens, true), model->tokenizer().decode(*ids, true));
  ASSERT_TRUE(cache->prepare(composed, *session).ok());
  const auto parts = cache->parts(composed);
  GenerateRequest request;
  request.prompt = composed.tokens;
  request.parts = parts;
  request.repair = repair_of("all");
  request.max_tokens = 12;
  request.ignore_stop_tokens = true;
  request.sampler.temperature = 0;
  const auto got = generate(*session, request);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  GenerateRequest plain = request;
  plain.parts = {};
  const auto want = generate(*session_of(model), plain);
  ASSERT_TRUE(want.ok());
  EXPECT_EQ(got->tokens, want->tokens);
  EXPECT_EQ(got->figures.compose.tokens, composed.tokens.size());
  // The same with drafts, and again in the same session.
  request.speculate.max_draft = 4;
  EXPECT_EQ(generate(*session, request)->tokens, want->tokens);
  request.prompt.pop_back();
  EXPECT_EQ(generate(*session, request).status().code(), Code::kInvalidArgument);
  request.prompt = plain.prompt;
  request.parts = std::span(parts).first(1);
  EXPECT_EQ(generate(*session, request).status().code(), Code::kInvalidArgument);
}

TEST(ModuleCacheTest, OtherTechniquesGoWithIt) {
  const auto plain = schema_model("llama");
  const auto want = [&] {
    const auto cache = cache_of(plain, kModuleSchema);
    return composed_logits(*cache, *session_of(plain), composed_of(*cache, kModulePrompt));
  }();
  // Codes change what is said a little.
  const auto coded = schema_model("llama", {.bits = "8"});
  const auto cache = cache_of(coded, kModuleSchema);
  const ComposedPrompt composed = composed_of(*cache, kModulePrompt);
  const auto session = session_of(coded);
  EXPECT_EQ(composed_logits(*cache, *session, composed), want)
      << "the prompt itself is read before it is coded";
  const TokenId next = 5;
  ASSERT_TRUE(session->append({&next, 1}, Purpose::kGeneration).ok());
  const auto exact = session_of(plain);
  const auto plain_cache = cache_of(plain, kModuleSchema);
  (void)composed_logits(*plain_cache, *exact, composed);
  ASSERT_TRUE(exact->append({&next, 1}, Purpose::kGeneration).ok());
  const std::vector<float> a(session->logits().begin(), session->logits().end());
  const std::vector<float> b(exact->logits().begin(), exact->logits().end());
  EXPECT_NE(a, b);
  EXPECT_LT(distance(a, b), 0.5);
  // What the session reads next is coded as ever.
  ASSERT_TRUE(session->truncate(0).ok());
  const std::vector<TokenId> text(130, 7);
  ASSERT_TRUE(session->append(text, Purpose::kPrompt).ok());
  EXPECT_EQ(session->kv_figures().exactness, Exactness::kQuantised);
  // A policy takes keys out of it.
  ModelSettings settings;
  settings.eviction.policy = KvPolicy::kSnapKv;
  settings.eviction.share = 0.5;
  const auto sparse = schema_model("llama", settings);
  const auto sparse_cache = cache_of(sparse, kModuleSchema);
  const auto sparse_session = session_of(sparse);
  ASSERT_TRUE(sparse_cache->prepare(composed, *sparse_session).ok());
  const auto parts = sparse_cache->parts(composed);
  GenerateRequest request;
  request.prompt = composed.tokens;
  request.parts = parts;
  request.max_tokens = 4;
  request.ignore_stop_tokens = true;
  const auto got = generate(*sparse_session, request);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_TRUE(got->figures.kv.pruned);
  EXPECT_EQ(got->figures.kv.exactness, Exactness::kComposed);
}

TEST(ModuleCacheTest, ProblemsAreNamedAndLeaveTheSessionUsable) {
  const auto model = schema_model("llama");
  const auto session = session_of(model);
  const auto cache = cache_of(model, kModuleSchema);
  const ComposedPrompt composed = composed_of(*cache, kModulePrompt);
  StopPolicy stop;
  stop.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(cache->prepare(composed, *session, stop).code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(session->tokens().empty());
  ASSERT_TRUE(cache->prepare(composed, *session).ok());
  EXPECT_EQ(session->compose(cache->parts(composed), {}, stop).status().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(session->tokens().empty());
  std::vector<TextPart> overlap = {{composed.tokens, 0}, {composed.tokens, 3}};
  EXPECT_EQ(session->compose(overlap).status().code(), Code::kInvalidArgument);
  const std::vector<TokenId> many(2000, 5);
  EXPECT_EQ(session->compose(std::vector<TextPart>{{many, 0}}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(session->compose(std::vector<TextPart>{{composed.tokens, 1020}}).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(session->kv_bytes(), 0U);
  EXPECT_FALSE(composed_logits(*cache, *session, composed).empty());
  EXPECT_EQ(session->kv_figures().exactness, Exactness::kComposed);
  EXPECT_EQ(parse_module_places("here").status().code(), Code::kInvalidArgument);
  // Nothing of a composed text is kept as a prefix but what comes before its modules.
  EXPECT_EQ(kv_blocks_as(session->kv(), kv_space(session->kv(), model->prompt_compute(), {}, {}), 9), 0U);
  ModelSettings streaming;
  streaming.eviction.policy = KvPolicy::kStreaming;
  streaming.eviction.tokens = 128;
  EXPECT_EQ(
      ModuleCache::create(schema_model("llama", streaming), schema_of(kModuleSchema), {}).status().code(),
      Code::kUnsupported);
  const auto without = schema_of("<schema name='s' role='system'>x</schema>");
  EXPECT_EQ(ModuleCache::create(model, without, {}).status().code(), Code::kFailedPrecondition);
}

TEST(ModuleCacheTest, RepairsAreRead) {
  for (const char* text : {"none", "all", "first:16", "deviating:0.15"})
    EXPECT_EQ(repair_name(repair_of(text)), text);
  for (const char* text :
       {"", "first", "first:", "first:0", "first:1.5", "first:x", "deviating:0", "deviating:2", "some"}) {
    EXPECT_EQ(parse_repair(text).status().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace isthmus
