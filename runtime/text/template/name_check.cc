#include "runtime/text/template/name_check.h"

#include <fmt/format.h>

#include "runtime/text/template/filters.h"
#include "runtime/text/template/lexer.h"
#include "runtime/text/template/tests.h"

namespace fasa::jinja {
namespace {

// `conditional`: inside an if. The parser limits the depth of trees.
void check(const Expression* node, bool conditional) {
  if (node == nullptr) return;
  const bool inner = conditional || node->kind == Expression::Kind::kCondition;
  if (!inner && node->kind == Expression::Kind::kFilter && !is_filter(node->name)) {
    throw SyntaxFailure{node->at, unknown_filter(node->name)};
  }
  if (!inner && node->kind == Expression::Kind::kTest && !is_test(node->name)) {
    throw SyntaxFailure{node->at, unknown_test(node->name)};
  }
  for (const ExpressionPtr& part : node->parts) check(part.get(), inner);
  for (const Argument& argument : node->arguments) check(argument.value.get(), inner);
}

void check(const Body& body, bool conditional);

void check(const Statement& statement, bool conditional) {
  check(statement.expression.get(), conditional);
  check(statement.condition.get(), false);
  for (const Branch& branch : statement.branches) {
    check(branch.condition.get(), true);
    check(branch.body, true);
  }
  if (statement.macro != nullptr) {
    for (const Parameter& parameter : statement.macro->parameters) {
      check(parameter.otherwise.get(), false);
    }
  }
  // Every other body is a function of its own, for which an enclosing if does not count.
  check(statement.body, false);
  check(statement.otherwise, false);
}

void check(const Body& body, bool conditional) {
  for (const Statement& statement : body) check(statement, conditional);
}

}  // namespace

void check_names(const Body& body) { check(body, false); }

}  // namespace fasa::jinja
