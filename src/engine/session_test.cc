#include "engine/session.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

constexpr size_t kTreeTokens = 8;
const std::vector<TokenId> kText = {40, 41, 42, 43, 44};

std::shared_ptr<LanguageModel> load_llama() {
  ModelOptions options;
  options.context = 64;
  options.sequences = 2;
  options.step_outputs = kTreeTokens;
  auto model = LanguageModel::load(ISTHMUS_TINY_MODELS "/llama.gguf", std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

/// A session that read the prompt, then `more` one token a step.
std::unique_ptr<Session> session_at(const std::shared_ptr<LanguageModel>& model,
                                    const std::vector<TokenId>& more = {}) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_TRUE((*session)->append(kText, Purpose::kPrompt).ok());
  for (const TokenId token : more) EXPECT_TRUE((*session)->append({&token, 1}, Purpose::kGeneration).ok());
  return std::move(*session);
}

std::vector<float> logits_of(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

TEST(Session, ATreeWithoutParentsIsAChain) {
  const auto model = load_llama();
  const size_t vocab = model->config().vocab;
  const auto session = session_at(model);
  const std::vector<TokenId> chain = {50, 51, 52};
  std::vector<float> rows;
  ASSERT_TRUE(session->try_tree(chain, {}, rows).ok());
  ASSERT_EQ(rows.size(), chain.size() * vocab);
  const auto in_a_row = session_at(model, chain);
  EXPECT_EQ(std::vector<float>(rows.end() - static_cast<ptrdiff_t>(vocab), rows.end()), logits_of(*in_a_row));

  EXPECT_EQ(session->accept(std::vector<uint32_t>{1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->accept(std::vector<uint32_t>{0, 2}).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->accept(std::vector<uint32_t>{0, 1, 2, 3}).code(), Code::kInvalidArgument);
  ASSERT_TRUE(session->accept(std::vector<uint32_t>{0, 1}).ok());
  EXPECT_EQ(session->tokens().size(), kText.size() + 2);
  const TokenId next = 60;
  ASSERT_TRUE(session->append({&next, 1}, Purpose::kGeneration).ok());
  EXPECT_EQ(logits_of(*session), logits_of(*session_at(model, {50, 51, 60})));
}

TEST(Session, AcceptingNothingOfATreeKeepsTheLogits) {
  const auto session = session_at(load_llama());
  const std::vector<float> before = logits_of(*session);
  std::vector<float> rows;
  ASSERT_TRUE(session->try_tree(std::vector<TokenId>{50, 51}, std::vector<int32_t>{-1, -1}, rows).ok());
  ASSERT_TRUE(session->accept({}).ok());
  EXPECT_EQ(logits_of(*session), before);
  EXPECT_EQ(session->tokens().size(), kText.size());
}

TEST(Session, ATreeIsGoneOnceTheTextChanged) {
  const auto model = load_llama();
  const std::vector<TokenId> tree = {50, 51};
  const std::vector<int32_t> parents = {-1, 0};
  std::vector<float> rows;
  const auto expect_refused = [](Session& session, const std::vector<uint32_t>& path) {
    const std::vector<float> before = logits_of(session);
    const std::vector<TokenId> tokens(session.tokens().begin(), session.tokens().end());
    EXPECT_EQ(session.accept(path).code(), Code::kFailedPrecondition);
    EXPECT_EQ(logits_of(session), before);
    EXPECT_EQ(std::vector<TokenId>(session.tokens().begin(), session.tokens().end()), tokens);
  };
  const auto session = session_at(model);
  expect_refused(*session, {});  // none was ever tried
  expect_refused(*session, {0});

  const TokenId next = 60;
  ASSERT_TRUE(session->try_tree(tree, parents, rows).ok());
  ASSERT_TRUE(session->append({&next, 1}, Purpose::kGeneration).ok());
  ASSERT_FALSE(session->logits().empty());
  expect_refused(*session, {});
  expect_refused(*session, {0, 1});

  ASSERT_TRUE(session->try_tree(tree, parents, rows).ok());
  ASSERT_TRUE(session->truncate(session->tokens().size()).ok());
  expect_refused(*session, {0});

  ASSERT_TRUE(session->try_tree(tree, parents, rows).ok());
  ASSERT_TRUE(session->accept(std::vector<uint32_t>{0}).ok());
  EXPECT_TRUE(session->logits().empty());  // the newest step went past the token that was kept
  expect_refused(*session, {1});
}

TEST(Session, AFailedTreeChangesNothing) {
  const auto session = session_at(load_llama());
  const std::vector<float> before = logits_of(*session);
  std::vector<float> rows;
  const auto try_tree = [&](const std::vector<TokenId>& tokens, const std::vector<int32_t>& parents) {
    return session->try_tree(tokens, parents, rows).code();
  };
  EXPECT_EQ(try_tree({50, 51}, {-1, 1}), Code::kInvalidArgument);
  EXPECT_EQ(try_tree({50, 51}, {-1}), Code::kInvalidArgument);
  EXPECT_EQ(try_tree({-7}, {-1}), Code::kInvalidArgument);
  EXPECT_EQ(try_tree(std::vector<TokenId>(session->room() + 1, 50), {}), Code::kResourceExhausted);
  EXPECT_EQ(session->accept({}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(logits_of(*session), before);
  EXPECT_EQ(session->tokens().size(), kText.size());
}

}  // namespace
}  // namespace isthmus
