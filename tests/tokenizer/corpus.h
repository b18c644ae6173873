// Reads the regression corpora of tests/tokenizer/data: gzip-compressed JSON rows of [text, flags, ids].
//
// flags: 1 special tokens are parsed, 2 BOS and EOS are added. For tests: what cannot be read is a failed
// assertion and an empty result.
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

/// Encodes every row and compares; fails when there are fewer than `at_least` rows.
inline void expect_rows(const Tokenizer& tokenizer, const nlohmann::json& rows, size_t at_least) {
  ASSERT_GE(rows.size(), at_least);
  for (const auto& row : rows) {
    const auto text = row[0].get<std::string>();
    const auto flags = row[1].get<unsigned>();
    const auto specials = (flags & 1) != 0 ? Specials::kParse : Specials::kAsText;
    ASSERT_EQ(tokenizer.encode(text, specials, (flags & 2) != 0), row[2].get<std::vector<TokenId>>())
        << tokenizer.name() << ", flags " << flags << ": " << text;
  }
}

}  // namespace isthmus::testing
