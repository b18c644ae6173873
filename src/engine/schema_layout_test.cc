#include "engine/schema_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isthmus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A token for each letter.
std::vector<TokenId> letters(std::string_view text) { return {text.begin(), text.end()}; }

SchemaLayout layout_of(std::string_view xml, size_t most = 1000) {
  const auto schema =
      PromptSchema::parse(xml, [](const std::string&) -> Result<std::string> { return not_found(""); });
  EXPECT_TRUE(schema.ok()) << schema.status().to_string();
  auto out = SchemaLayout::create(*schema, letters("^"), letters, most);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return std::move(*out);
}

constexpr const char* kTrip =
    "<schema name='trip'>AB"
    "<module name='plan'>CDE<parameter name='days' length='4'/>F<module name='deep'>GH</module>I</module>"
    "<union><module name='paris'>JKL</module><module name='rome'>MNOPQ</module></union>"
    "R<module name='end'>S</module></schema>";

std::string run_text(const SchemaLayout& layout, size_t run) {
  const auto& tokens = layout.runs()[run].tokens;
  return {tokens.begin(), tokens.end()};
}

/// "text@position" of each part.
std::vector<std::string> chosen(const SchemaLayout& layout, const std::string& prompt) {
  const auto parsed = SchemaPrompt::parse(prompt);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  const auto parts = layout.choose(*parsed, letters);
  EXPECT_TRUE(parts.ok()) << parts.status().to_string();
  std::vector<std::string> out;
  for (const auto& part : *parts) {
    const std::string text = part.run == SchemaLayout::kNone
                                 ? std::string(part.argument.begin(), part.argument.end())
                                 : run_text(layout, part.run);
    out.push_back(text + "@" + std::to_string(part.position));
  }
  return out;
}

Status refused(const SchemaLayout& layout, const std::string& prompt) {
  const auto parsed = SchemaPrompt::parse(prompt);
  EXPECT_TRUE(parsed.ok());
  return layout.choose(*parsed, letters).status();
}

TEST(SchemaLayoutTest, PositionsGoFromLeftToRight) {
  const SchemaLayout layout = layout_of(kTrip);
  std::vector<std::string> runs;
  for (size_t i = 0; i < layout.runs().size(); ++i) {
    runs.push_back(run_text(layout, i) + "@" + std::to_string(layout.runs()[i].position));
  }
  EXPECT_THAT(runs,
              ElementsAre("^AB@0", "CDE@3", "F@10", "GH@11", "I@13", "JKL@14", "MNOPQ@14", "R@19", "S@20"));
  EXPECT_EQ(layout.length(), 21U);
  EXPECT_EQ(layout.run_tokens(), 20U);
}

TEST(SchemaLayoutTest, PromptsTakeWhatTheyName) {
  const SchemaLayout layout = layout_of(kTrip);
  EXPECT_THAT(chosen(layout, "hello"), ElementsAre("^AB@0", "R@19"));
  EXPECT_THAT(chosen(layout, "<prompt><rome/><plan days='xy'><deep/></plan>q</prompt>"),
              ElementsAre("^AB@0", "CDE@3", "xy@6", "F@10", "GH@11", "I@13", "MNOPQ@14", "R@19"));
  EXPECT_THAT(chosen(layout, "<prompt><plan days=''/><end/>q</prompt>"),
              ElementsAre("^AB@0", "CDE@3", "F@10", "I@13", "R@19", "S@20"));
}

TEST(SchemaLayoutTest, RefusesWhatTheSchemaDoesNotHave) {
  const SchemaLayout layout = layout_of(kTrip);
  const std::vector<std::tuple<std::string, Code, std::string>> cases = {
      {"<prompt schema='other'>q</prompt>", Code::kInvalidArgument, "'other'"},
      {"<prompt><pari/>q</prompt>", Code::kInvalidArgument, "did you mean 'paris'"},
      {"<prompt><deep/>q</prompt>", Code::kInvalidArgument, "no module 'deep'"},
      {"<prompt><plan><paris/></plan>q</prompt>", Code::kInvalidArgument, "module 'plan' has no module"},
      {"<prompt><paris/><rome/>q</prompt>", Code::kInvalidArgument, "union"},
      {"<prompt><plan/><plan/>q</prompt>", Code::kInvalidArgument, "twice"},
      {"<prompt><plan day='x'/>q</prompt>", Code::kInvalidArgument, "did you mean 'days'"},
      {"<prompt><plan days='12345'/>q</prompt>", Code::kResourceExhausted, "room for 4"},
  };
  for (const auto& [prompt, code, says] : cases) {
    const Status status = refused(layout, prompt);
    EXPECT_EQ(status.code(), code) << prompt;
    EXPECT_THAT(status.message(), HasSubstr(says));
  }
}

TEST(SchemaLayoutTest, RunsSeeWhatTheViewSays) {
  const SchemaLayout layout = layout_of(kTrip);
  // 0 ^AB, 1 CDE, 2 F, 3 GH (deep), 4 I, 5 JKL (paris), 6 MNOPQ (rome), 7 R, 8 S (end)
  EXPECT_THAT(layout.seen(3, ModuleView::kIsolated), ElementsAre());
  EXPECT_THAT(layout.seen(4, ModuleView::kIsolated), ElementsAre(1, 2));
  EXPECT_THAT(layout.seen(7, ModuleView::kIsolated), ElementsAre(0));
  EXPECT_THAT(layout.seen(3, ModuleView::kAnchored), ElementsAre(0, 1, 2));
  EXPECT_THAT(layout.seen(6, ModuleView::kAnchored), ElementsAre(0));
  EXPECT_THAT(layout.seen(8, ModuleView::kAnchored), ElementsAre(0, 7));
  EXPECT_THAT(layout.seen(6, ModuleView::kWhole), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(layout.seen(8, ModuleView::kWhole), ElementsAre(0, 1, 2, 3, 4, 7));
}

TEST(SchemaLayoutTest, ASchemaMustFitTheModel) {
  const auto schema =
      PromptSchema::parse(kTrip, [](const std::string&) -> Result<std::string> { return not_found(""); });
  ASSERT_TRUE(schema.ok());
  EXPECT_TRUE(SchemaLayout::create(*schema, letters("^"), letters, 21).ok());
  EXPECT_EQ(SchemaLayout::create(*schema, letters("^"), letters, 20).status().code(),
            Code::kResourceExhausted);
}

TEST(SchemaLayoutTest, NamesOfViewsAreRead) {
  for (const ModuleView view : {ModuleView::kIsolated, ModuleView::kAnchored, ModuleView::kWhole}) {
    const auto read = parse_module_view(module_view_name(view));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, view);
  }
  EXPECT_EQ(parse_module_view("all").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace isthmus
