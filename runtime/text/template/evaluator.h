// Runs a parsed template.
#pragma once

#include <ctime>
#include <string>

#include "runtime/text/template/arguments.h"
#include "runtime/text/template/ast.h"
#include "runtime/text/template/scope.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {

// One rendering. Throws Failure; at() is then its position in the source.
class Evaluator {
 public:
  Evaluator(Work& work, const std::tm& now) : work_(work), now_(now) {}

  MarkedText run(const Body& body, Scope& scope);
  uint32_t at() const { return at_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow statements(const Body& body, Scope& scope);
  Flow statement(const Statement& statement, Scope& scope);
  Flow branch(const Statement& statement, Scope& scope);
  Flow loop(const Statement& statement, Scope& scope);
  std::vector<Value> loop_items(const Statement& statement, Scope& scope);
  void write(const MarkedText& text);
  // Runs the body and returns its output in `text`.
  Flow capture(const Body& body, Scope& scope, MarkedText* text);
  Flow set_block(const Statement& statement, Scope& scope);
  Flow filter_block(const Statement& statement, Scope& scope);
  void call_block(const Statement& statement, Scope& scope);
  void assign(const Target& target, const Value& value, Scope& scope);

  Value value(const Expression& node, const Scope& scope);
  Value name(const Expression& node, const Scope& scope);
  Value collection(const Expression& node, const Scope& scope);
  Value dict(const Expression& node, const Scope& scope);
  Value condition(const Expression& node, const Scope& scope);
  Value either(const Expression& node, const Scope& scope);
  Value comparison(const Expression& node, const Scope& scope);
  Value arithmetic(const Expression& node, const Scope& scope);
  Value concatenation(const Expression& node, const Scope& scope);
  Value sign(const Expression& node, const Scope& scope);
  Value item(const Expression& node, const Scope& scope);
  Value slice(const Expression& node, const Scope& scope);
  Value filtered(const Expression& node, const Scope& scope);
  Value tested(const Expression& node, const Scope& scope);
  Value call(const Expression& node, const Scope& scope, const Value* caller);
  Value call_macro(const Macro& macro, Arguments arguments);
  void bind(const MacroDefinition& definition, Arguments arguments, Scope* scope);
  Value rest_of(const Arguments& arguments, size_t taken);
  Arguments arguments(const Expression& node, const Scope& scope);
  const Value& holdable(const Value& value) const;

  Work& work_;
  const std::tm& now_;
  uint32_t at_ = 0;
  int frames_ = 0;  // recursion depth of these functions
  int macros_ = 0;  // depth of macro calls
  MarkedText* out_ = nullptr;
  Value block_text_;  // value of kBlockText
};

}  // namespace fasa::jinja
