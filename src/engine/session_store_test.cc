// Sessions over one budget: what comes back has the bits of what was put away, memory is taken in the order
// that LLMS says, and no text is lost whatever happens.
#include "engine/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/testing/memory_tier.h"

namespace isthmus {
namespace {

using ::testing::HasSubstr;
using testing::MemoryTier;
using testing::quick_digest;

/// Texts in memory that outlive a store, as files would.
class MemoryArchive final : public SessionArchive {
 public:
  Status save(const SessionText& text) override {
    if (full) return resource_exhausted("full");
    texts[text.name] = text;
    return ok_status();
  }
  Result<SessionText> load(const std::string& name) override {
    const auto found = texts.find(name);
    if (found == texts.end()) return not_found("no such session");
    return found->second;
  }
  Status remove(const std::string& name) override {
    texts.erase(name);
    return ok_status();
  }

  std::map<std::string, SessionText> texts;
  bool full = false;
};

constexpr size_t kStoreContext = 256;

std::shared_ptr<LanguageModel> store_model(int bits, size_t kv_tokens = 0, const std::string& name = "llama",
                                           Precision precision = Precision::kDefault) {
  ModelOptions options;
  options.context = kStoreContext;
  options.sequences = 2;
  options.kv_tokens = kv_tokens;
  options.kv_levels = session_levels(bits);
  options.precision = precision;
  auto model = LanguageModel::load(ISTHMUS_TINY_MODELS "/" + name + ".gguf", std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

struct Kept {
  MemoryArchive archive;
  MemoryTier tier;
};

std::unique_ptr<SessionStore> store_of(const std::shared_ptr<LanguageModel>& model, Kept& kept, int bits,
                                       bool with_tier = true) {
  SessionStoreOptions options;
  options.bits = bits;
  options.archive = &kept.archive;
  if (with_tier) options.tier = &kept.tier;
  options.digest = quick_digest;
  auto out = SessionStore::create(model, std::move(options));
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? std::move(*out) : nullptr;
}

std::vector<TokenId> session_tokens(size_t n, uint32_t seed) {
  std::vector<TokenId> out(n);
  std::mt19937 random(seed);
  for (TokenId& token : out) token = static_cast<TokenId>(random() % 290);
  return out;
}

void read(Session& session, const std::vector<TokenId>& tokens) {
  ASSERT_TRUE(session.append(tokens, Purpose::kPrompt).ok());
}

/// Logits after one more token.
std::vector<float> next_logits(Session& session, TokenId token = 5) {
  EXPECT_TRUE(session.append({&token, 1}, Purpose::kGeneration).ok());
  return {session.logits().begin(), session.logits().end()};
}

std::vector<float> fresh_logits(const std::shared_ptr<LanguageModel>& model,
                                const std::vector<TokenId>& tokens) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok());
  read(**session, tokens);
  return next_logits(**session);
}

SwitchFigures switch_to(SessionStore& store, const std::string& name) {
  const auto out = store.activate(name);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? *out : SwitchFigures{};
}

TEST(SessionStoreTest, AParkedSessionComesBackWithItsBits) {
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const auto model = store_model(16, 0, name);
    const auto text = session_tokens(150, 1);
    const auto want = fresh_logits(model, text);
    Kept kept;
    {
      const auto store = store_of(model, kept, 16);
      EXPECT_EQ(switch_to(*store, "a").tokens, 0U);
      read(store->session(), text);
      // From memory.
      switch_to(*store, "b");
      EXPECT_EQ(store->session().tokens().size(), 0U);
      const SwitchFigures back = switch_to(*store, "a");
      EXPECT_EQ(back.memory_tokens, 150U);
      EXPECT_EQ(next_logits(store->session()), want) << name;
      ASSERT_TRUE(store->session().truncate(150).ok());
      ASSERT_TRUE(store->park().ok());
    }
    // From disk, in another process.
    {
      const auto store = store_of(model, kept, 16);
      const SwitchFigures back = switch_to(*store, "a");
      EXPECT_EQ(back.stored_tokens, 150U) << back.reason;
      EXPECT_EQ(back.computed_tokens, 0U);
      EXPECT_EQ(next_logits(store->session()), want) << name;
    }
    // Computed anew, when the tier lost everything.
    kept.tier.by_key.clear();
    const auto store = store_of(model, kept, 16);
    const SwitchFigures back = switch_to(*store, "a");
    EXPECT_EQ(back.computed_tokens, 150U);
    EXPECT_EQ(next_logits(store->session()), want) << name;
  }
}

TEST(SessionStoreTest, AnyMixOfReadComputedAndHeldIsTheSameText) {
  const auto model = store_model(16);
  const auto text = session_tokens(200, 2);
  const auto want = fresh_logits(model, text);
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    Kept kept;
    const auto store = store_of(model, kept, 16);
    switch_to(*store, "a");
    read(store->session(), text);
    ASSERT_TRUE(store->park().ok());
    // Some is taken from memory, some of that is lost below, and the plan may prefer to compute some.
    (void)store->reclaim(random() % 60);
    for (auto it = kept.tier.by_key.begin(); it != kept.tier.by_key.end();) {
      it = random() % 3 == 0 ? kept.tier.by_key.erase(it) : std::next(it);
    }
    if (round % 2 == 1) store->speeds().compute_per_token = 1e-6;
    const SwitchFigures back = switch_to(*store, "a");
    EXPECT_EQ(back.memory_tokens + back.stored_tokens + back.computed_tokens, 200U);
    EXPECT_EQ(next_logits(store->session()), want) << round;
  }
}

TEST(SessionStoreTest, DamagedRecordsAreComputedAnew) {
  const auto model = store_model(16);
  const auto text = session_tokens(200, 4);
  const auto want = fresh_logits(model, text);
  Kept kept;
  {
    const auto store = store_of(model, kept, 16);
    switch_to(*store, "a");
    read(store->session(), text);
    ASSERT_TRUE(store->park().ok());
  }
  for (auto& [key, bytes] : kept.tier.by_key) bytes[bytes.size() - 100] ^= std::byte{4};
  const auto store = store_of(model, kept, 16);
  const SwitchFigures back = switch_to(*store, "a");
  EXPECT_EQ(back.stored_tokens, 0U);
  EXPECT_FALSE(back.reason.empty());
  EXPECT_EQ(next_logits(store->session()), want);
}

TEST(SessionStoreTest, CodedSessionsTakeTheBytesOfTheirBitsAndStayNear) {
  const auto text = session_tokens(224, 5);
  const auto plain = store_model(16);
  const auto want = fresh_logits(plain, text);
  uint64_t as_written = 0;
  for (const int bits : {16, 8, 4, 2, kMixedBits}) {
    const auto model = store_model(bits);
    Kept kept;
    const auto store = store_of(model, kept, bits);
    switch_to(*store, "a");
    read(store->session(), text);
    const auto parked = store->park();
    ASSERT_TRUE(parked.ok());
    EXPECT_TRUE(parked->reason.empty()) << parked->reason;
    EXPECT_EQ(parked->coded_blocks, bits == 16 ? 0U : 7U);
    if (bits == 16) as_written = store->parked_bytes();
    const double share = static_cast<double>(store->parked_bytes()) / static_cast<double>(as_written);
    // Codes come with a scale and a minimum for 32 values: one more bit each.
    const double mean = bits == kMixedBits ? 4 : bits;
    EXPECT_NEAR(share, bits == 16 ? 1 : (mean + 1) / 16, 0.02) << bits;
    switch_to(*store, "a");
    EXPECT_EQ(store->session().kv_figures().exactness,
              bits == 16 ? Exactness::kExact : Exactness::kQuantised);
    const auto from_memory = next_logits(store->session());
    ASSERT_TRUE(store->session().truncate(224).ok());
    // The same codes from below.
    ASSERT_TRUE(store->park().ok());
    (void)store->reclaim(10'000);
    EXPECT_EQ(store->parked_bytes(), 0U);
    const SwitchFigures back = switch_to(*store, "a");
    EXPECT_EQ(back.stored_tokens, 224U) << back.reason;
    EXPECT_EQ(next_logits(store->session()), from_memory) << bits;
    double apart = 0;
    for (size_t t = 0; t < want.size(); ++t)
      apart = std::max(apart, std::abs(double{want[t]} - double{from_memory[t]}));
    const double most = bits == 16 ? 0 : bits == 8 ? 0.3 : 100;
    EXPECT_LE(apart, most) << bits;
    if (bits == kMixedBits) {
      EXPECT_GT(apart, 0);
      int high = 0;
      for (const SessionChunk& chunk : kept.archive.texts["a"].chunks) high += chunk.bits == 8 ? 1 : 0;
      EXPECT_LE(high, 2);
    }
  }
}

TEST(SessionStoreTest, MemoryIsTakenLeastCompressedAndLongestUnusedFirst) {
  const auto model = store_model(kMixedBits, 1024);
  Kept kept;
  const auto store = store_of(model, kept, kMixedBits);
  for (const char* name : {"a", "b", "c"}) {
    switch_to(*store, name);
    read(store->session(), session_tokens(200, 6));
  }
  ASSERT_TRUE(store->park().ok());
  // What is as written (the tails of 8 tokens) goes first, a's before b's and c's.
  const auto held = [&](const std::string& name) { return store->held_bits(name); };
  const size_t streams = model->config().layers * model->config().n_kv_heads;
  std::vector<std::pair<int, std::string>> order;
  for (const int bits : {16, 8, 4, 2}) {
    for (const char* name : {"a", "b", "c"}) {
      const auto list = held(name);
      for (int i = 0; i < std::count(list.begin(), list.end(), bits); ++i) order.emplace_back(bits, name);
    }
  }
  // Each call takes what is next in that order, and nothing else.
  while (!order.empty()) {
    const size_t before = held("a").size() + held("b").size() + held("c").size();
    (void)store->reclaim(1);
    size_t gone = before - held("a").size() - held("b").size() - held("c").size();
    ASSERT_GT(gone, 0U);
    order.erase(order.begin(), order.begin() + static_cast<ptrdiff_t>(std::min(gone, order.size())));
    std::vector<std::pair<int, std::string>> left;
    for (const int bits : {16, 8, 4, 2}) {
      for (const char* name : {"a", "b", "c"}) {
        const auto list = held(name);
        for (int i = 0; i < std::count(list.begin(), list.end(), bits); ++i) left.emplace_back(bits, name);
      }
    }
    EXPECT_EQ(left, order);
  }
  EXPECT_GT(streams, 0U);
}

TEST(SessionStoreTest, ManySessionsShareASmallPool) {
  // Room for two texts, and twelve sessions.
  const auto model = store_model(8, 512);
  Kept kept;
  const auto store = store_of(model, kept, 8);
  std::map<std::string, std::vector<TokenId>> texts;
  for (uint32_t i = 0; i < 12; ++i) {
    const std::string name = "s" + std::to_string(i);
    texts[name] = session_tokens(150 + 5 * i, i);
    switch_to(*store, name);
    read(store->session(), texts[name]);
  }
  for (const auto& [name, text] : texts) {
    switch_to(*store, name);
    const auto got = store->session().tokens();
    EXPECT_EQ(std::vector<TokenId>(got.begin(), got.end()), text);
    EXPECT_EQ(store->session().kv().length(), text.size());
  }
}

TEST(SessionStoreTest, TextsGrowChangeAndShrink) {
  const auto model = store_model(16);
  Kept kept;
  const auto store = store_of(model, kept, 16);
  auto text = session_tokens(100, 7);
  switch_to(*store, "a");
  read(store->session(), text);
  switch_to(*store, "b");
  switch_to(*store, "a");
  // Goes on.
  const auto more = session_tokens(70, 8);
  read(store->session(), more);
  text.insert(text.end(), more.begin(), more.end());
  const auto grown = kept.tier.writes;
  switch_to(*store, "b");
  EXPECT_EQ(kept.tier.writes, grown + 2)
      << "the blocks that became full in one record, the new tail in another";
  (void)store->reclaim(10'000);
  switch_to(*store, "a");
  EXPECT_EQ(next_logits(store->session()), fresh_logits(model, text));
  // Goes back and another way.
  ASSERT_TRUE(store->session().truncate(50).ok());
  text.resize(50);
  const auto other = session_tokens(60, 9);
  read(store->session(), other);
  text.insert(text.end(), other.begin(), other.end());
  switch_to(*store, "b");
  (void)store->reclaim(10'000);
  EXPECT_EQ(switch_to(*store, "a").stored_tokens, 110U);
  EXPECT_EQ(next_logits(store->session()), fresh_logits(model, text));
  // What no text holds any more is not kept.
  ASSERT_TRUE(store->park().ok());
  EXPECT_EQ(kept.tier.by_key.size(), 4U);
  ASSERT_TRUE(store->drop("a").ok());
  EXPECT_TRUE(kept.tier.by_key.empty());
  EXPECT_EQ(kept.archive.texts.count("a"), 0U);
}

/// Ten thousand random switches, with stores that die in between without a word.
TEST(SessionStoreTest, NothingIsLostOverManySwitchesAndKills) {
  const auto model = store_model(16, 512);
  Kept kept;
  std::map<std::string, std::vector<TokenId>> texts;  // as of the last time each was parked
  std::mt19937 random(10);
  auto store = store_of(model, kept, 16);
  size_t killed = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = "s" + std::to_string(random() % 20);
    const std::string before = store->active();
    if (!before.empty() && before != name) {
      const auto tokens = store->session().tokens();
      texts[before].assign(tokens.begin(), tokens.end());
    }
    switch_to(*store, name);
    const auto held = store->session().tokens();
    const std::vector<TokenId> got(held.begin(), held.end());
    if (before != name) {
      ASSERT_EQ(got, texts[name]) << i;
    }
    ASSERT_EQ(store->session().kv().length(), got.size());
    if (random() % 400 == 0 && !got.empty()) {
      ASSERT_EQ(next_logits(store->session()), fresh_logits(model, got)) << i;
      ASSERT_TRUE(store->session().truncate(got.size()).ok());
    }
    if (got.size() > 180) {
      ASSERT_TRUE(store->session().truncate(random() % got.size()).ok());
    }
    if (random() % 4 == 0)
      read(store->session(), session_tokens(1 + random() % 20, static_cast<uint32_t>(random())));
    if (random() % 50 == 0) {
      store.reset();  // what was read since it was parked is gone, as it was never promised
      ++killed;
      for (auto it = kept.tier.by_key.begin(); it != kept.tier.by_key.end();) {
        it = random() % 20 == 0 ? kept.tier.by_key.erase(it) : std::next(it);
      }
      store = store_of(model, kept, 16);
    }
  }
  EXPECT_GT(killed, 100U);
}

TEST(SessionStoreTest, AFullDiskKeepsTheSessionAndSaysSo) {
  const auto model = store_model(16);
  Kept kept;
  kept.tier.full = true;
  const auto store = store_of(model, kept, 16);
  const auto text = session_tokens(90, 11);
  switch_to(*store, "a");
  read(store->session(), text);
  auto parked = store->park();
  ASSERT_TRUE(parked.ok());
  EXPECT_THAT(parked->reason, HasSubstr("full"));
  (void)store->reclaim(10'000);
  EXPECT_EQ(switch_to(*store, "a").computed_tokens, 90U);
  EXPECT_EQ(next_logits(store->session()), fresh_logits(model, text));
  ASSERT_TRUE(store->session().truncate(90).ok());
  kept.archive.full = true;
  EXPECT_EQ(store->park().status().code(), Code::kResourceExhausted);
  EXPECT_EQ(store->active(), "a") << "what cannot be made durable stays";
  EXPECT_EQ(store->activate("b").status().code(), Code::kResourceExhausted);
  EXPECT_EQ(store->session().tokens().size(), 90U);
  kept.archive.full = false;
  ASSERT_TRUE(store->park().ok());
}

TEST(SessionStoreTest, WorksWithoutADiskAndWithFastPrompts) {
  const auto model = store_model(16, 0, "llama", Precision::kFast);
  Kept kept;
  for (const bool with_tier : {false, true}) {
    const auto store = store_of(model, kept, 16, with_tier);
    const auto text = session_tokens(100, 12);
    switch_to(*store, "a");
    read(store->session(), text);
    const auto before = next_logits(store->session());
    ASSERT_TRUE(store->session().truncate(100).ok());
    ASSERT_TRUE(store->park().ok());
    (void)store->reclaim(10'000);
    const SwitchFigures back = switch_to(*store, "a");
    EXPECT_EQ(back.computed_tokens, with_tier ? 0U : 100U) << back.reason;
    EXPECT_EQ(next_logits(store->session()), before);
    ASSERT_TRUE(store->drop("a").ok());
  }
}

TEST(SessionStoreTest, RefusesWhatCannotBe) {
  const auto model = store_model(16);
  Kept kept;
  const auto store = store_of(model, kept, 16);
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string(".a"), std::string(200, 'a'), std::string("a b")}) {
    EXPECT_EQ(store->activate(name).status().code(), Code::kInvalidArgument) << name;
  }
  SessionText other;
  other.name = "other";
  other.model = std::string(64, 'f');
  kept.archive.texts["other"] = other;
  EXPECT_EQ(store->activate("other").status().code(), Code::kFailedPrecondition);
  other.name = "bad";
  other.model = hex_of({});
  other.tokens = {1 << 30};
  other.chunks.resize(1);
  kept.archive.texts["bad"] = other;
  EXPECT_EQ(store->activate("bad").status().code(), Code::kCorrupt);
  other.name = "long";
  other.tokens.assign(kStoreContext + 1, 5);
  other.chunks.resize(9);
  kept.archive.texts["long"] = other;
  EXPECT_EQ(store->activate("long").status().code(), Code::kResourceExhausted);
  switch_to(*store, "a");
  read(store->session(), session_tokens(64, 13));
  ASSERT_TRUE(store->park().ok());
  (void)store->reclaim(10'000);
  kept.tier.by_key.clear();
  StopPolicy stop;
  stop.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(store->activate("a", stop).status().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(store->active().empty());
  EXPECT_EQ(switch_to(*store, "a").tokens, 64U);
  SessionStoreOptions options;
  options.bits = 4;
  EXPECT_EQ(SessionStore::create(model, options).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_session_bits("3").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*parse_session_bits("mixed"), kMixedBits);
}

}  // namespace
}  // namespace isthmus
