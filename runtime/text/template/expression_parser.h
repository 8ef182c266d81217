// Parses expressions by Jinja's ranks of operators.
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
  // `depth` counts what is nested in each other, blocks included, up to `limit`.
  ExpressionParser(TokenReader& tokens, int* depth, int limit)
      : tokens_(tokens), depth_(depth), limit_(limit) {}

  ExpressionPtr expression();  // `a if b else c` included
  // One expression, or several between commas, which are a tuple.
  ExpressionPtr tuple(bool with_condition);
  // Filters, without what they are applied to: that is kBlockText.
  ExpressionPtr block_filters();
  Target target(bool members);

  // Names of the kinds that macros must know about, since the last call of reset.
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
