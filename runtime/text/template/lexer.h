// Splits a template into tokens and applies its white space rules: trim_blocks and lstrip_blocks,
// as Hugging Face sets them, and the signs of single tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kText,  // a literal; `text` is its value
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t at;  // offset in the source
  std::string text;
};

// An error in a template, and its position.
struct SyntaxFailure {
  uint32_t at;
  std::string message;
};

// The source to which token offsets refer: line ends are \n, and one at the end is removed.
std::string normalize_lines(std::string_view source);
// `source`: normalized, valid UTF-8. The last token is kEnd. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace fasa::jinja
