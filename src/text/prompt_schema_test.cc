#include "text/prompt_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace isthmus {
namespace {

using ::testing::HasSubstr;
using Kind = SchemaNode::Kind;

Result<PromptSchema> parse(std::string_view xml, std::map<std::string, std::string> files = {}) {
  return PromptSchema::parse(xml, [files](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return not_found("no such file");
    return found->second;
  });
}

void expect_refused(std::string_view xml, Code code, const std::string& says) {
  const auto schema = parse(xml);
  ASSERT_FALSE(schema.ok()) << xml;
  EXPECT_EQ(schema.status().code(), code) << schema.status().to_string();
  EXPECT_THAT(schema.status().message(), HasSubstr(says));
}

TEST(PromptSchemaTest, HoldsWhatTheFileSays) {
  const auto schema = parse(R"(<?xml version="1.0"?>
<!DOCTYPE schema SYSTEM "http://localhost/x.dtd">
<schema name="trip" role="system">
You plan trips &lt;well&gt;.
  <module name="plan">For <parameter name="days" length="3"/> days.<module name="inner">deep</module></module>
  <!-- a comment -->
  <union>
    <module name="paris"><![CDATA[<b>Paris</b>]]></module>
    <module name="rome" src="texts/rome.txt"/>
  </union>
</schema>)",
                            {{"texts/rome.txt", "  \n"}});
  ASSERT_TRUE(schema.ok()) << schema.status().to_string();
  EXPECT_EQ(schema->name, "trip");
  EXPECT_EQ(schema->role, SchemaRole::kSystem);
  const auto& root = schema->root.children;
  ASSERT_EQ(root.size(), 3U);
  EXPECT_EQ(root[0].kind, Kind::kText);
  EXPECT_EQ(root[0].text, "\nYou plan trips <well>.\n  ");
  ASSERT_EQ(root[1].children.size(), 4U);
  EXPECT_EQ(root[1].children[1].kind, Kind::kParameter);
  EXPECT_EQ(root[1].children[1].length, 3U);
  EXPECT_EQ(root[1].children[3].children[0].text, "deep");
  EXPECT_EQ(root[2].kind, Kind::kUnion);
  ASSERT_EQ(root[2].children.size(), 2U);
  EXPECT_EQ(root[2].children[0].children[0].text, "<b>Paris</b>");
  EXPECT_TRUE(root[2].children[1].children.empty()) << "white space with a line break is layout";
}

TEST(PromptSchemaTest, RefusesWhatIsNoSchema) {
  expect_refused("", Code::kCorrupt, "");
  expect_refused("<schema name='a'>\n<b>", Code::kCorrupt, "line 2");
  expect_refused(std::string_view("<schema name='a'>\n\0</schema>", 28), Code::kCorrupt,
                 "line 2: a byte of value 0");
  expect_refused("<prompt/>", Code::kInvalidArgument, "one <schema>");
  expect_refused("<schema name='a'/><schema name='b'/>", Code::kInvalidArgument, "one <schema>");
  expect_refused("<schema/>", Code::kInvalidArgument, "no name");
  expect_refused("<schema name='prompt'/>", Code::kInvalidArgument, "no name");
  expect_refused("<schema name='a' role='assistant'/>", Code::kInvalidArgument, "role is");
  expect_refused("<schema name='a' x='1'/>", Code::kInvalidArgument, "no attribute 'x'");
  expect_refused("<schema name='a' name='b'/>", Code::kInvalidArgument, "twice");
  expect_refused("<schema name='a'><parameter name='p' length='1'/></schema>", Code::kInvalidArgument,
                 "into a module");
  expect_refused("<schema name='a'><text/></schema>", Code::kInvalidArgument, "<text> is no part");
  expect_refused("<schema name='a'>\n<module name='m'/>\n<module name='m'/></schema>", Code::kInvalidArgument,
                 "line 3: 'm'");
  expect_refused("<schema name='a'><module name='m'/><union><module name='m'/></union></schema>",
                 Code::kInvalidArgument, "beside it");
  expect_refused("<schema name='a'><union>text</union></schema>", Code::kInvalidArgument, "modules alone");
  expect_refused("<schema name='a'><union/></schema>", Code::kInvalidArgument, "without modules");
  for (const char* length : {"", "0", "-1", "65537", "9999999", "1x"}) {
    expect_refused("<schema name='a'><module name='m'><parameter name='p' length='" + std::string(length) +
                       "'/></module></schema>",
                   Code::kInvalidArgument, "length of a parameter");
  }
  for (const char* path : {"/etc/passwd", "../x", "a/../../x", "", "a//b", "./x", "a\\b"}) {
    expect_refused("<schema name='a'><module name='m' src='" + std::string(path) + "'/></schema>",
                   Code::kInvalidArgument, "inside the schema's folder");
  }
  expect_refused("<schema name='a'><module name='m' src='x'>text</module></schema>", Code::kInvalidArgument,
                 "not both");
  expect_refused("<schema name='a'><module name='m' src='x'/></schema>", Code::kNotFound, "x");
}

TEST(PromptSchemaTest, HasLimits) {
  std::string deep = "<schema name='a'>";
  for (int i = 0; i < 20; ++i) deep += "<module name='m'>";
  for (int i = 0; i < 20; ++i) deep += "</module>";
  expect_refused(deep + "</schema>", Code::kResourceExhausted, "nested deeper");
  std::string many = "<schema name='a'>";
  for (int i = 0; i < 10'001; ++i) many += "<module name='m" + std::to_string(i) + "'/>";
  expect_refused(many + "</schema>", Code::kResourceExhausted, "parts");
  expect_refused(std::string(kMaxSchemaBytes + 1, ' '), Code::kResourceExhausted, "bytes of XML");
  std::string bomb =
      "<!DOCTYPE z [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><schema name='a'>&b;</schema>";
  const auto schema = parse(bomb);
  ASSERT_TRUE(schema.ok());
  EXPECT_EQ(schema->root.children[0].text, "&b;") << "entities of a DTD are not known";
  std::string twice = "<schema name='a'><module name='m' src='x'/><module name='n' src='x'/></schema>";
  const auto big = parse(twice, {{"x", std::string(kMaxSchemaBytes - 5, 'a')}});
  EXPECT_EQ(big.status().code(), Code::kResourceExhausted);
}

TEST(SchemaPromptTest, TakesModulesThenText) {
  const auto prompt = SchemaPrompt::parse(
      "\n<prompt schema='trip'>\n <plan days='three'> <inner/> </plan>\n <paris/>\n  What now? "
      "<![CDATA[<]]>\n</prompt>\n");
  ASSERT_TRUE(prompt.ok()) << prompt.status().to_string();
  EXPECT_EQ(prompt->schema, "trip");
  ASSERT_EQ(prompt->uses.size(), 2U);
  EXPECT_EQ(prompt->uses[0].name, "plan");
  ASSERT_EQ(prompt->uses[0].arguments.size(), 1U);
  EXPECT_EQ(prompt->uses[0].arguments[0].second, "three");
  EXPECT_EQ(prompt->uses[0].inner[0].name, "inner");
  EXPECT_EQ(prompt->text, "What now? <");
}

TEST(SchemaPromptTest, AnyOtherTextIsAQuestion) {
  const auto prompt = SchemaPrompt::parse(" What is <b>? ");
  ASSERT_TRUE(prompt.ok());
  EXPECT_TRUE(prompt->uses.empty());
  EXPECT_EQ(prompt->text, "What is <b>?");
}

TEST(SchemaPromptTest, RefusesTextBetweenModules) {
  for (const auto& [xml, says] :
       std::vector<std::pair<std::string, std::string>>{{"<prompt>text<a/></prompt>", "behind text"},
                                                        {"<prompt><a>text</a></prompt>", "belongs behind"},
                                                        {"<prompt x='1'/>", "no attribute"},
                                                        {"<prompt><a></prompt>", "line 1"},
                                                        {"<prompter/>", "one <prompt>"}}) {
    const auto prompt = SchemaPrompt::parse(xml);
    ASSERT_FALSE(prompt.ok()) << xml;
    EXPECT_THAT(prompt.status().message(), HasSubstr(says));
  }
}

}  // namespace
}  // namespace isthmus
