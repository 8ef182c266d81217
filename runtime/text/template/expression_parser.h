// Parses expressions with Jinja's operator precedence.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/text/template/ast.h"
#include "runtime/text/template/token_reader.h"

namespace fasa::jinja {

// Throws SyntaxFailure.
class ExpressionParser {
 public:
  // `depth` counts nesting, blocks included; at most `limit`.
  ExpressionParser(TokenReader& tokens, int* depth, int limit)
      : tokens_(tokens), depth_(depth), limit_(limit) {}

  ExpressionPtr expression();  // including `a if b else c`
  // One expression, or several separated by commas, which form a tuple.
  ExpressionPtr tuple(bool with_condition);
  // Filters only; they apply to kBlockText.
  ExpressionPtr block_filters();
  Target target(bool members);

  // Special names used since the last reset, which a macro needs to know.
  struct Uses {
    bool caller = false;
    bool varargs = false;
    bool kwargs = false;
  };
  Uses uses;

 private:
  ExpressionPtr make(Expression::Kind kind, uint32_t at, std::vector<ExpressionPtr> parts) const;
  ExpressionPtr chain(Expression::Kind kind, std::string_view word,
                      ExpressionPtr (ExpressionParser::*part)());
  ExpressionPtr any();
  ExpressionPtr all();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr arithmetic(ExpressionPtr (ExpressionParser::*part)(),
                           const std::vector<std::pair<std::string_view, Arithmetic>>& operators);
  ExpressionPtr unary() { return signed_value(true); }
  ExpressionPtr signed_value(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr literal();
  ExpressionPtr bracketed_list();
  ExpressionPtr braced_dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filters(ExpressionPtr value);
  ExpressionPtr filter(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  ExpressionPtr attribute(ExpressionPtr value);
  ExpressionPtr item(ExpressionPtr value);
  ExpressionPtr call(ExpressionPtr callee);
  std::vector<Argument> arguments();
  std::string dotted_name(std::string_view what);
  std::optional<Comparison> comparison_operator();
  bool tuple_ends() const;

  TokenReader& tokens_;
  int* depth_;
  int limit_;
};

}  // namespace fasa::jinja
