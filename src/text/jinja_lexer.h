// Turns template source into tokens, with jinja2's rules for whitespace control as transformers sets them:
// trim_blocks and lstrip_blocks on, one trailing newline of the source dropped.
//
// Runs in one pass without recursion; errors are TemplateErrors with the offset of the trouble.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_error.h"

namespace isthmus::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // text: decoded
  kInteger,  // integer
  kFloat,    // real
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  Offset at = 0;
  std::string text;
  int64_t integer = 0;
  double real = 0;

  bool is_op(std::string_view op) const { return type == TokenType::kOperator && text == op; }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

/// "\r\n" and "\r" become "\n", and one newline at the end is dropped: what the tokens' offsets refer to.
std::string normalise_source(std::string_view source);

/// Tokens of a normalised source; the last one is kEnd.
std::vector<Token> tokenise(std::string_view source);

/// How an error message calls a token.
std::string describe(const Token& token);

}  // namespace isthmus::jinja
