#include "apps/isthmus/cli.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/isthmus/command.h"
#include "apps/isthmus/completion.h"
#include "apps/isthmus/describe.h"
#include "apps/isthmus/exit_code.h"
#include "apps/isthmus/man_page.h"

namespace isthmus::cli {
namespace {

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome run_with(const std::vector<std::string>& arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run(arguments);
  std::fflush(stderr);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(Cli, WithoutArgumentsListsEveryVisibleCommand) {
  const Outcome outcome = run_with({});
  EXPECT_EQ(outcome.code, 0);
  for (const Command& command : all_commands()) {
    const bool listed = outcome.out.find("\n  " + command.name + " ") != std::string::npos;
    EXPECT_EQ(listed, command.group != Group::kHidden) << command.name;
  }
  EXPECT_EQ(outcome.err, "");
}

TEST(Cli, EveryCommandHasHelpThatSaysWhatItDoes) {
  for (const Command& command : all_commands()) {
    const Outcome outcome = run_with({command.name, "--help"});
    EXPECT_EQ(outcome.code, 0) << command.name;
    EXPECT_TRUE(outcome.out.starts_with(command.summary)) << outcome.out;
    EXPECT_NE(outcome.out.find("Usage: isthmus " + command.name), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("--json") != std::string::npos, command.json) << command.name;
  }
}

TEST(Cli, SuggestsTheVerbThatWasMeant) {
  const Outcome outcome = run_with({"vresion"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err,
            "isthmus: unknown command 'vresion'; did you mean 'version'?\nSee 'isthmus --help'.\n");
}

TEST(Cli, SuggestsTheFlagThatWasMeant) {
  const Outcome outcome = run_with({"version", "--jsno"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("unknown option '--jsno'; did you mean '--json'?"), std::string::npos);
}

TEST(Cli, NamesAnArgumentThatIsTooMuch) {
  const Outcome outcome = run_with({"version", "now"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("unexpected argument 'now'"), std::string::npos) << outcome.err;
}

TEST(Cli, AnErrorUnderJsonIsOneDocument) {
  const Outcome outcome = run_with({"version", "--json", "--nonsense"});
  EXPECT_EQ(outcome.code, 2);
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["error"]["code"], "invalid_argument");
  EXPECT_EQ(document["error"]["message"], "unknown option '--nonsense'");
}

TEST(Cli, VersionIsTheSameInEachForm) {
  const auto document = nlohmann::json::parse(run_with({"version", "--json"}).out);
  const std::string version = document["version"];
  EXPECT_EQ(run_with({"--version"}).out, "isthmus " + version + "\n");
  EXPECT_TRUE(run_with({"version"}).out.starts_with("isthmus " + version + " ("));
}

TEST(Cli, HelpOfAnUnknownCommandSuggests) {
  const Outcome outcome = run_with({"help", "completoin"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("did you mean 'completion'?"), std::string::npos) << outcome.err;
}

TEST(Cli, CommandNamesAndSummariesKeepTheForm) {
  for (const Command& command : all_commands()) {
    EXPECT_FALSE(command.summary.empty()) << command.name;
    EXPECT_NE(command.summary.back(), '.') << command.name;
    EXPECT_TRUE(command.summary[0] >= 'A' && command.summary[0] <= 'Z') << command.name;
    EXPECT_LE(command.summary.size(), 80u) << command.name;
  }
}

TEST(Cli, TakesNumbersAsTheyStandOrNotAtAll) {
  for (const std::string wrong : {"-1", "1.5", "0x10", "1e3", "99999999999999999999", "many", " 5"}) {
    const Outcome outcome = run_with({"run", "m.gguf", "hi", "--top-k", wrong});
    EXPECT_EQ(outcome.code, 2) << wrong;
    EXPECT_NE(outcome.err.find("--top-k: '" + wrong + "'"), std::string::npos) << outcome.err;
  }
  for (const std::string wrong : {"nan", "inf", "-inf", "1e999", "0.5x", "half"}) {
    const Outcome outcome = run_with({"run", "m.gguf", "hi", "--top-p", wrong});
    EXPECT_EQ(outcome.code, 2) << wrong;
    EXPECT_NE(outcome.err.find("--top-p: '" + wrong + "' is not a number"), std::string::npos) << outcome.err;
  }
  const Outcome outcome = run_with({"run", "no-such.gguf", "hi", "--top-k", "5", "--top-p", "0.5"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
}

TEST(Cli, ExplainsOptionsThatStandWrong) {
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } cases[] = {
      {{"run", "m.gguf", "hi", "-n"}, "isthmus run: --max-tokens needs a value\n"},
      {{"run", "m.gguf", "hi", "-c", "5", "-c", "6"}, "isthmus run: --ctx is given more than once\n"},
      {{"--json", "list"}, "isthmus list: the option '--json' stands behind the command\n"},
      {{"run", "m.gguf", "hi", "--greedy=5"}, "isthmus run: --greedy takes no value\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run_with(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_TRUE(outcome.err.starts_with(message)) << outcome.err;
  }
}

TEST(ExitCodes, AreThoseOfTheirPage) {
  std::ifstream file(ISTHMUS_SOURCE_DIR "/docs/commands/exit-codes.md");
  ASSERT_TRUE(file.good());
  std::stringstream page;
  page << file.rdbuf();
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i) {
    const Code code = static_cast<Code>(i);
    const std::string row = "| " + std::to_string(static_cast<int>(exit_code(code))) + " |";
    const size_t at = page.str().find(row);
    ASSERT_NE(at, std::string::npos) << row;
    const std::string line = page.str().substr(at, page.str().find('\n', at) - at);
    EXPECT_NE(line.find("`" + std::string(code_name(code)) + "`"), std::string::npos) << line;
  }
}

/// A tree with one of everything, to look at what is written from it.
class Tree : public testing::Test {
 protected:
  Tree() : root_("Does things", "isthmus") {
    root_.option_defaults()->always_capture_default();
    CLI::App* verb = root_.add_subcommand("eat", "Eat a fruit's \"core\"");
    verb->group("Food");
    verb->add_option("FRUIT", fruit_, "Which one")->required();
    verb->add_option("-n,--number", number_, "How [many]: the user's count")->type_name("N");
    verb->add_flag("--all", all_, "Everything");
    verb->add_option("--most", most_, "At most (default: no limit)")->check(CLI::Range(1, 9));
    CLI::App* nested = verb->add_subcommand("slowly", "With care");
    nested->group("Food");
    nested->add_flag("--chew", chew_, "Chew first");
  }
  CLI::App root_;
  std::string fruit_;
  int number_ = 3;
  int most_ = 0;
  bool all_ = false;
  bool chew_ = false;
};

TEST_F(Tree, IsDescribed) {
  const CommandDoc doc = describe(root_);
  ASSERT_EQ(doc.commands.size(), 1u);
  const CommandDoc& eat = doc.commands[0];
  ASSERT_EQ(eat.positionals.size(), 1u);
  EXPECT_EQ(eat.positionals[0].name, "FRUIT");
  EXPECT_TRUE(eat.positionals[0].required);
  ASSERT_EQ(eat.options.size(), 4u);  // --help too
  EXPECT_EQ(eat.options[1].flags, (std::vector<std::string>{"-n", "--number"}));
  EXPECT_EQ(eat.options[1].value, "N");
  EXPECT_EQ(eat.options[1].default_value, "3");
  EXPECT_EQ(eat.options[2].value, "");
  EXPECT_EQ(eat.options[2].default_value, "");
  EXPECT_EQ(eat.options[3].value, "N");  // without the range that the parser knows
  EXPECT_EQ(eat.options[3].default_value, "");
  EXPECT_EQ(usage_line(describe(*root_.get_subcommand("eat"))), "isthmus eat [options] COMMAND … FRUIT");
}

TEST_F(Tree, HelpWrapsLongTextAndKeepsIndentedLines) {
  CommandDoc doc = describe(*root_.get_subcommand("eat"));
  doc.description = "Fruits:\n  apple   " + std::string(120, 'x') + "\n\nEnd.";
  const std::string text = help_text(doc);
  EXPECT_NE(text.find("\nFruits:\n  apple  \n" + std::string(120, 'x') + "\n\nEnd.\n"), std::string::npos)
      << text;
}

TEST_F(Tree, ManPageEscapesWhatRoffWouldRead) {
  const std::string page = man_page(describe(*root_.get_subcommand("eat")), "1.2.3");
  EXPECT_TRUE(page.starts_with(".TH \"ISTHMUS\\-EAT\" 1 \"\" \"isthmus 1.2.3\"")) << page;
  EXPECT_NE(page.find("\\fB\\-n\\fR, \\fB\\-\\-number\\fR \\fIN\\fR"), std::string::npos) << page;
  EXPECT_NE(page.find("\\fBslowly\\fR"), std::string::npos) << page;
}

TEST_F(Tree, CompletionScriptsNameEveryVerbAndFlag) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Result<std::string> script = completion_script(describe(root_), shell);
    ASSERT_TRUE(script.ok());
    for (const std::string word : {"eat", "slowly", "number", "all", "chew"}) {
      EXPECT_NE(script->find(word), std::string::npos) << shell << " " << word;
    }
  }
  EXPECT_EQ(completion_script(describe(root_), "csh").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace isthmus::cli
