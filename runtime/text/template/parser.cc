#include "runtime/text/template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "runtime/text/template/expression_parser.h"
#include "runtime/text/template/functions/filters.h"
#include "runtime/text/template/functions/tests.h"
#include "runtime/text/template/lexer.h"
#include "runtime/text/template/token_reader.h"

namespace fasa::jinja {
namespace {

using Kind = Statement::Kind;
using Words = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(std::string_view source, int depth)
      : tokens_(tokenize(source)), depth_limit_(depth), expressions_(tokens_, &depth_, depth) {}

  Body run() { return body({}); }

 private:
  // Statements up to a tag with one of these names, which is then the next token; up to the
  // template's end if there are no names.
  Body body(Words ends) {
    const Nesting nesting(&depth_, depth_limit_, tokens_.peek().at);
    Body statements;
    while (!tokens_.at(TokenKind::kEnd)) {
      const Token token = tokens_.take();
      if (token.kind == TokenKind::kData) {
        statements.push_back(simple(Kind::kText, token.at));
        statements.back().text = token.text;
      } else if (token.kind == TokenKind::kVariableBegin) {
        statements.push_back(simple(Kind::kOutput, token.at));
        statements.back().expression = expressions_.tuple(true);
        tokens_.expect(TokenKind::kVariableEnd, "\"}}\"");
      } else {
        const bool ended = std::any_of(ends.begin(), ends.end(),
                                       [&](std::string_view end) { return tokens_.at_name(end); });
        if (ended) return statements;
        statements.push_back(statement());
        end_tag();
      }
    }
    if (ends.size() > 0) {
      tokens_.fail_expected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    }
    return statements;
  }

  static Statement simple(Kind kind, uint32_t at) {
    Statement statement;
    statement.kind = kind;
    statement.at = at;
    return statement;
  }

  void end_tag() { tokens_.expect(TokenKind::kBlockEnd, "\"%}\""); }

  // The body after this tag, up to its end tag, whose name is consumed.
  Body block(std::string_view end) {
    tokens_.skip_operator(":");
    end_tag();
    Body statements = body({end});
    tokens_.take();
    return statements;
  }

  // Like block(), for a body that is a function of its own: an enclosing loop is not its loop.
  Body function_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body statements = block(end);
    loops_ = loops;
    return statements;
  }

  Statement statement() {
    const Token token = tokens_.peek();
    const std::string name = tokens_.expect_name("a tag's name");
    if (name == "if") return if_statement(token.at);
    if (name == "for") return for_statement(token.at);
    if (name == "set") return set_statement(token.at);
    if (name == "macro") return macro_statement(token.at);
    if (name == "call") return call_statement(token.at);
    if (name == "filter") {
      Statement result = simple(Kind::kFilterBlock, token.at);
      result.expression = expressions_.block_filters();
      result.body = block("endfilter");
      return result;
    }
    if (name == "generation") {
      Statement result = simple(Kind::kGeneration, token.at);
      result.body = function_block("endgeneration");
      return result;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) TokenReader::fail(token.at, fmt::format("{} is outside a loop", name));
      return simple(name == "break" ? Kind::kBreak : Kind::kContinue, token.at);
    }
    TokenReader::fail(token.at, fmt::format("the tag {} is not supported; supported: if, for, set, "
                                            "macro, call, filter, generation, break, continue",
                                            name));
  }

  Statement if_statement(uint32_t at) {
    Statement result = simple(Kind::kIf, at);
    ExpressionPtr condition = expressions_.tuple(false);
    while (true) {
      tokens_.skip_operator(":");
      end_tag();
      result.branches.push_back({std::move(condition), body({"elif", "else", "endif"})});
      const std::string end = tokens_.take().text;
      if (end == "endif") return result;
      if (end == "else") break;
      condition = expressions_.tuple(false);
    }
    result.branches.push_back({nullptr, block("endif")});
    return result;
  }

  Statement for_statement(uint32_t at) {
    Statement result = simple(Kind::kFor, at);
    result.target = expressions_.target(false);
    if (!tokens_.skip_name("in")) tokens_.fail_expected("\"in\"");
    result.expression = expressions_.tuple(false);
    if (tokens_.skip_name("if")) result.condition = expressions_.expression();
    if (tokens_.at_name("recursive")) {
      TokenReader::fail(tokens_.peek().at, "recursive loops are not supported");
    }
    tokens_.skip_operator(":");
    end_tag();
    ++loops_;
    result.body = body({"else", "endfor"});
    --loops_;
    if (tokens_.take().text == "else") result.otherwise = block("endfor");
    return result;
  }

  Statement set_statement(uint32_t at) {
    Statement result = simple(Kind::kSet, at);
    result.target = expressions_.target(true);
    if (tokens_.skip_operator("=")) {
      result.expression = expressions_.tuple(true);
      return result;
    }
    result.kind = Kind::kSetBlock;
    if (tokens_.skip_operator("|")) result.expression = expressions_.block_filters();
    result.body = block("endset");
    return result;
  }

  std::vector<Parameter> signature() {
    std::vector<Parameter> parameters;
    tokens_.expect_operator("(");
    while (!tokens_.at_operator(")")) {
      const uint32_t at = tokens_.peek().at;
      Parameter parameter{tokens_.expect_name("a parameter's name"), nullptr};
      if (tokens_.skip_operator("=")) {
        parameter.otherwise = expressions_.expression();
      } else if (!parameters.empty() && parameters.back().otherwise != nullptr) {
        TokenReader::fail(at, "a parameter without default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
      if (!tokens_.skip_operator(",")) break;
    }
    tokens_.expect_operator(")");
    return parameters;
  }

  // Parses the rest of a macro or call block into `result`.
  void finish_macro(Statement* result, std::string name, std::vector<Parameter> parameters,
                    std::string_view end) {
    const ExpressionParser::Uses outer = std::exchange(expressions_.uses, {});
    result->body = function_block(end);
    result->macro = std::make_unique<MacroDefinition>();
    result->macro->at = result->at;
    result->macro->name = std::move(name);
    result->macro->parameters = std::move(parameters);
    ExpressionParser::Uses& used = expressions_.uses;
    result->macro->uses_caller = used.caller;
    result->macro->uses_varargs = used.varargs;
    result->macro->uses_kwargs = used.kwargs;
    used = {used.caller || outer.caller, used.varargs || outer.varargs,
            used.kwargs || outer.kwargs};
  }

  Statement macro_statement(uint32_t at) {
    Statement result = simple(Kind::kMacro, at);
    std::string name = tokens_.expect_name("the macro's name");
    std::vector<Parameter> parameters = signature();
    finish_macro(&result, std::move(name), std::move(parameters), "endmacro");
    return result;
  }

  Statement call_statement(uint32_t at) {
    Statement result = simple(Kind::kCallBlock, at);
    std::vector<Parameter> parameters;
    if (tokens_.at_operator("(")) parameters = signature();
    result.expression = expressions_.expression();
    if (result.expression->kind != Expression::Kind::kCall) {
      TokenReader::fail(at, "a call block must call a macro");
    }
    finish_macro(&result, "caller", std::move(parameters), "endcall");
    return result;
  }

  TokenReader tokens_;
  int depth_ = 0;
  int depth_limit_;
  int loops_ = 0;
  ExpressionParser expressions_;
};

// Throws SyntaxFailure at the first unknown name of a filter or test. As in Jinja, names inside an
// if or a conditional expression (`conditional`) are not checked and fail when reached: templates
// use this to detect features. The parser limits the depth of trees.
void check_names(const Expression* node, bool conditional) {
  if (node == nullptr) return;
  const bool inner = conditional || node->kind == Expression::Kind::kCondition;
  if (!inner && node->kind == Expression::Kind::kFilter && !is_filter(node->name)) {
    throw SyntaxFailure{node->at, unknown_filter(node->name)};
  }
  if (!inner && node->kind == Expression::Kind::kTest && !is_test(node->name)) {
    throw SyntaxFailure{node->at, unknown_test(node->name)};
  }
  for (const ExpressionPtr& part : node->parts) check_names(part.get(), inner);
  for (const Argument& argument : node->arguments) check_names(argument.value.get(), inner);
}

void check_names(const Body& body, bool conditional);

void check_names(const Statement& statement, bool conditional) {
  check_names(statement.expression.get(), conditional);
  check_names(statement.condition.get(), false);
  for (const Branch& branch : statement.branches) {
    check_names(branch.condition.get(), true);
    check_names(branch.body, true);
  }
  if (statement.macro != nullptr) {
    for (const Parameter& parameter : statement.macro->parameters) {
      check_names(parameter.otherwise.get(), false);
    }
  }
  // Every other body is a function of its own, for which an enclosing if does not count.
  check_names(statement.body, false);
  check_names(statement.otherwise, false);
}

void check_names(const Body& body, bool conditional) {
  for (const Statement& statement : body) check_names(statement, conditional);
}

}  // namespace

Body parse_template(std::string_view source, int depth) {
  Body body = Parser(source, depth).run();
  check_names(body, false);
  return body;
}

}  // namespace fasa::jinja
