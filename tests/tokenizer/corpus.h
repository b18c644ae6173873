// Reads the regression corpora of tests/tokenizer/data: gzip-compressed JSON rows of [text, flags, ids] or,
// where the references differ, [text, flags, ids, other ids, class].
//
// flags: 1 special tokens are parsed, 2 BOS and EOS are added. `ids` are llama.cpp's; Hugging Face
// `tokenizers` gave the same ones in rows of three with flags 0 or 1 (byte-level vocabularies and gemma3),
// and the other ones in rows of five, whose class docs/tokenizers.md explains. For tests: what cannot be read
// is a failed assertion and an empty result.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace isthmus::testing {

inline nlohmann::json read_json_gz(const std::string& name) {
  const std::string path = std::string(ISTHMUS_SOURCE_DIR) + "/tests/tokenizer/data/" + name;
  gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  if (file == nullptr) return {};
  std::string text;
  std::vector<char> buffer(1 << 16);
  int count = 0;
  while ((count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  EXPECT_EQ(count, 0) << path << " is damaged";
  gzclose(file);
  nlohmann::json out = nlohmann::json::parse(text, nullptr, false);
  EXPECT_FALSE(out.is_discarded()) << path;
  return out;
}

/// The classes of differences between the references that are known.
inline bool is_known_class(const std::string& name) {
  for (const char* known : {"newer characters", "missing bytes", "newer characters, missing bytes",
                            "overlapping specials", "long s"}) {
    if (name == known) return true;
  }
  return false;
}

/// Encodes every row and compares; fails when there are fewer than `at_least` rows, or other than `different`
/// in which the references differ.
inline void expect_rows(const Tokenizer& tokenizer, const nlohmann::json& rows, size_t at_least,
                        size_t different) {
  ASSERT_GE(rows.size(), at_least);
  size_t found = 0;
  for (const auto& row : rows) {
    const auto text = row[0].get<std::string>();
    const auto flags = row[1].get<unsigned>();
    const auto specials = (flags & 1) != 0 ? Specials::kParse : Specials::kAsText;
    ASSERT_EQ(tokenizer.encode(text, specials, (flags & 2) != 0), row[2].get<std::vector<TokenId>>())
        << tokenizer.name() << ", flags " << flags << ": " << text;
    if (row.size() == 3) continue;
    ASSERT_EQ(row.size(), 5U);
    ASSERT_NE(row[3], row[2]) << text;
    ASSERT_TRUE(is_known_class(row[4].get<std::string>())) << row[4];
    ++found;
  }
  EXPECT_EQ(found, different) << tokenizer.name();
}

}  // namespace isthmus::testing
