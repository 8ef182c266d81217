// The evaluator's statements.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "runtime/text/template/evaluator.h"
#include "runtime/text/template/frame.h"
#include "runtime/text/template/functions/functions.h"
#include "runtime/text/template/operators.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {

using Kind = Statement::Kind;

MarkedText Evaluator::run(const Body& body, Scope& scope) {
  MarkedText text;
  capture(body, scope, &text);
  return text;
}

void Evaluator::write(const MarkedText& text) {
  work_.step_bytes(text.size());
  out_->append(text);
  work_.check_size(out_->size());
}

Evaluator::Flow Evaluator::capture(const Body& body, Scope& scope, MarkedText* text) {
  MarkedText* const outer = std::exchange(out_, text);
  const Flow flow = statements(body, scope);
  out_ = outer;
  return flow;
}

Evaluator::Flow Evaluator::statements(const Body& body, Scope& scope) {
  const Frame frame(&frames_);
  for (const Statement& next : body) {
    at_ = next.at;
    work_.step();
    const Flow flow = statement(next, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::statement(const Statement& statement, Scope& scope) {
  switch (statement.kind) {
    case Kind::kText:
      write(MarkedText(statement.text, Origin::kTemplate));
      break;
    case Kind::kOutput: {
      const Value shown = value(*statement.expression, scope);
      at_ = statement.at;
      write(str_of(shown, work_));
      break;
    }
    case Kind::kIf:
      return branch(statement, scope);
    case Kind::kFor:
      return loop(statement, scope);
    case Kind::kSet:
      assign(statement.target, value(*statement.expression, scope), scope);
      break;
    case Kind::kSetBlock:
      return set_block(statement, scope);
    case Kind::kFilterBlock:
      return filter_block(statement, scope);
    case Kind::kMacro:
      scope.set(statement.macro->name,
                Value::Store(std::make_shared<const Macro>(statement, scope)));
      break;
    case Kind::kCallBlock:
      call_block(statement, scope);
      break;
    case Kind::kGeneration: {
      Scope inner(&scope);
      statements(statement.body, inner);
      break;
    }
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::branch(const Statement& statement, Scope& scope) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition != nullptr && !truth(value(*branch.condition, scope))) continue;
    return statements(branch.body, scope);
  }
  return Flow::kNext;
}

// The items for which the loop's condition holds.
std::vector<Value> Evaluator::loop_items(const Statement& statement, Scope& scope) {
  const Value iterable = value(*statement.expression, scope);
  at_ = statement.at;
  std::vector<Value> items = items_of(iterable, work_);
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    Scope inner(&scope);
    assign(statement.target, item, inner);
    if (truth(value(*statement.condition, inner))) kept.push_back(std::move(item));
  }
  return kept;
}

Evaluator::Flow Evaluator::loop(const Statement& statement, Scope& scope) {
  const auto loop = std::make_shared<Loop>(loop_items(statement, scope));
  // As in Jinja: `else` runs if no iteration completed, even if all were left early.
  bool came_to_end = false;
  for (; loop->index() < loop->items().size(); loop->advance()) {
    Scope inner(&scope);
    inner.set("loop", Value::Store(std::shared_ptr<const Loop>(loop)));
    at_ = statement.at;
    work_.step();
    assign(statement.target, loop->items()[loop->index()], inner);
    const Flow flow = statements(statement.body, inner);
    if (flow == Flow::kBreak) break;
    came_to_end |= flow == Flow::kNext;
  }
  if (came_to_end || statement.otherwise.empty()) return Flow::kNext;
  Scope inner(&scope);
  return statements(statement.otherwise, inner);
}

Evaluator::Flow Evaluator::set_block(const Statement& statement, Scope& scope) {
  MarkedText text;
  Scope inner(&scope);
  const Flow flow = capture(statement.body, inner, &text);
  if (flow != Flow::kNext) return flow;
  at_ = statement.at;
  Value result = work_.text(std::move(text));
  if (statement.expression != nullptr) {
    const Value outer = std::exchange(block_text_, result);
    result = value(*statement.expression, scope);
    block_text_ = outer;
  }
  assign(statement.target, result, scope);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::filter_block(const Statement& statement, Scope& scope) {
  MarkedText text;
  Scope inner(&scope);
  const Flow flow = capture(statement.body, inner, &text);
  if (flow != Flow::kNext) return flow;
  at_ = statement.at;
  const Value outer = std::exchange(block_text_, work_.text(std::move(text)));
  const Value result = value(*statement.expression, scope);
  block_text_ = outer;
  if (!result.is_text()) {
    throw Failure(fmt::format("the filters of a filter block return a {}; expected a string",
                              result.type_name()));
  }
  write(result.text()->text);
  return Flow::kNext;
}

void Evaluator::call_block(const Statement& statement, Scope& scope) {
  const Value caller = Value::Store(std::make_shared<const Macro>(statement, scope));
  const Value result = call(*statement.expression, scope, &caller);
  write(str_of(result, work_));
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.parts.empty()) {
    if (target.member.empty()) return scope.set(target.name, value);
    at_ = target.at;
    const Value* found = scope.find(target.name);
    Namespace* members = found == nullptr ? nullptr : found->name_space();
    if (members == nullptr) {
      throw Failure(
          fmt::format("{} is not a namespace; only members of namespaces can be set", target.name));
    }
    return set_member(*members, target.member, value);
  }
  const std::vector<Value> items = items_of(value, work_);
  if (items.size() != target.parts.size()) {
    at_ = target.at;
    throw Failure(
        fmt::format("cannot unpack {} values into {} names", items.size(), target.parts.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
}

}  // namespace fasa::jinja
