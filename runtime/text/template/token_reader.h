// A parser's position in the tokens.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/template/lexer.h"

namespace fasa::jinja {

class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& token = peek();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  bool at(TokenKind kind) const { return peek().kind == kind; }
  bool at_name(std::string_view name) const { return at(TokenKind::kName) && peek().text == name; }
  bool at_operator(std::string_view text) const {
    return at(TokenKind::kOperator) && peek().text == text;
  }
  bool skip_name(std::string_view name) { return at_name(name) && (take(), true); }
  bool skip_operator(std::string_view text) { return at_operator(text) && (take(), true); }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expected(fmt::format("\"{}\"", text));
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!at(kind)) fail_expected(what);
    take();
  }
  std::string expect_name(std::string_view what) {
    if (!at(TokenKind::kName)) fail_expected(what);
    return take().text;
  }

  [[noreturn]] void fail_expected(std::string_view what) const {
    throw SyntaxFailure{peek().at, fmt::format("expected {}, not {}", what, found())};
  }
  [[noreturn]] static void fail(uint32_t at, const std::string& message) {
    throw SyntaxFailure{at, message};
  }

 private:
  std::string found() const {
    switch (peek().kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kVariableEnd:
      case TokenKind::kBlockEnd:
        return "the end of the tag";
      case TokenKind::kText:
        return "a text";
      default:
        return fmt::format("\"{}\"", peek().text);
    }
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
};

// Counts the parser's nesting depth during its lifetime.
class Nesting {
 public:
  Nesting(int* depth, int limit, uint32_t at) : depth_(depth) {
    if (++*depth_ > limit) {
      --*depth_;
      throw SyntaxFailure{at, fmt::format("nested more than {} deep", limit)};
    }
  }
  ~Nesting() { --*depth_; }
  Nesting(const Nesting&) = delete;  // counts once
  Nesting& operator=(const Nesting&) = delete;

 private:
  int* depth_;
};

}  // namespace fasa::jinja
