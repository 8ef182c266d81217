#include "runtime/text/template/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/text/template/attributes.h"
#include "runtime/text/template/frame.h"
#include "runtime/text/template/functions/filters.h"
#include "runtime/text/template/functions/functions.h"
#include "runtime/text/template/functions/tests.h"
#include "runtime/text/template/operators.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {

using Kind = Expression::Kind;

Value Evaluator::value(const Expression& node, const Scope& scope) {
  at_ = node.at;
  const Frame frame(&frames_);
  work_.step();
  switch (node.kind) {
    case Kind::kConstant:
      return node.constant;
    case Kind::kName:
      return name(node, scope);
    case Kind::kList:
    case Kind::kTuple:
      return collection(node, scope);
    case Kind::kDict:
      return dict(node, scope);
    case Kind::kCondition:
      return condition(node, scope);
    case Kind::kOr:
    case Kind::kAnd:
      return either(node, scope);
    case Kind::kNot:
      return Value::of(!truth(value(*node.parts[0], scope)));
    case Kind::kCompare:
      return comparison(node, scope);
    case Kind::kArithmetic:
      return arithmetic(node, scope);
    case Kind::kConcat:
      return concatenation(node, scope);
    case Kind::kNegative:
    case Kind::kPositive:
      return sign(node, scope);
    case Kind::kAttribute:
    case Kind::kItem:
      return item(node, scope);
    case Kind::kSlice:
      return slice(node, scope);
    case Kind::kCall:
      return call(node, scope, nullptr);
    case Kind::kFilter:
      return filtered(node, scope);
    case Kind::kTest:
      return tested(node, scope);
    default:
      return block_text_;
  }
}

Value Evaluator::name(const Expression& node, const Scope& scope) {
  if (const Value* found = scope.find(node.name)) return *found;
  if (const auto function = find_function(node.name)) return Value::Store(*function);
  return Value::undefined(fmt::format("{} is undefined", node.name));
}

const Value& Evaluator::holdable(const Value& value) const {
  if (refers_to_scope(value)) {
    throw Failure(fmt::format("a list or dict cannot hold a {}", value.type_name()));
  }
  return value;
}

Value Evaluator::collection(const Expression& node, const Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.parts.size());
  for (const ExpressionPtr& part : node.parts) items.push_back(holdable(value(*part, scope)));
  at_ = node.at;
  return work_.list(std::move(items),
                    node.kind == Kind::kTuple ? ListKind::kTuple : ListKind::kList);
}

Value Evaluator::dict(const Expression& node, const Scope& scope) {
  std::vector<Dict::Entry> entries;
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    Value key = value(*node.parts[i], scope);
    entries.emplace_back(std::move(key), holdable(value(*node.parts[i + 1], scope)));
  }
  at_ = node.at;
  return work_.dict(std::move(entries));
}

Value Evaluator::condition(const Expression& node, const Scope& scope) {
  if (truth(value(*node.parts[0], scope))) return value(*node.parts[1], scope);
  if (node.parts[2] != nullptr) return value(*node.parts[2], scope);
  return Value::undefined("the condition of an if without else is false");
}

Value Evaluator::either(const Expression& node, const Scope& scope) {
  Value last;
  for (const ExpressionPtr& part : node.parts) {
    last = value(*part, scope);
    if (truth(last) == (node.kind == Kind::kOr)) break;
  }
  return last;
}

Value Evaluator::comparison(const Expression& node, const Scope& scope) {
  Value left = value(*node.parts[0], scope);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = value(*node.parts[i + 1], scope);
    at_ = node.at;
    if (!compare(node.comparisons[i], left, right, work_)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

// A row of additions of texts is concatenated once, since templates grow the prompt this way.
Value Evaluator::arithmetic(const Expression& node, const Scope& scope) {
  const auto plain = [](const Value& value) { return value.is_text() && !value.text()->markup; };
  Value left = value(*node.parts[0], scope);
  MarkedText sum;
  bool summing = false;  // `left` and all added to it are in `sum`
  for (size_t i = 0; i < node.operations.size(); ++i) {
    const Value right = value(*node.parts[i + 1], scope);
    at_ = node.at;
    const bool adds = node.operations[i] == Arithmetic::kAdd && plain(right);
    if (adds && (summing || plain(left))) {
      if (!std::exchange(summing, true)) sum = str_of(left, work_);
      sum.append(right.text()->text);
      work_.check_size(sum.size());
      continue;
    }
    if (std::exchange(summing, false)) left = work_.text(std::move(sum));
    left = calculate(node.operations[i], left, right, work_);
  }
  return summing ? work_.text(std::move(sum)) : left;
}

Value Evaluator::concatenation(const Expression& node, const Scope& scope) {
  MarkedText text;
  for (const ExpressionPtr& part : node.parts) {
    const Value piece = value(*part, scope);
    at_ = node.at;
    text.append(str_of(piece, work_));
    work_.check_size(text.size());
  }
  return work_.text(std::move(text));
}

Value Evaluator::sign(const Expression& node, const Scope& scope) {
  const Value operand = value(*node.parts[0], scope);
  at_ = node.at;
  if (node.kind == Kind::kNegative) return negated(operand);
  return negated(negated(operand));
}

Value Evaluator::item(const Expression& node, const Scope& scope) {
  const Value object = value(*node.parts[0], scope);
  if (node.kind == Kind::kAttribute) {
    at_ = node.at;
    return attribute_of(object, node.name, work_);
  }
  const Value key = value(*node.parts[1], scope);
  at_ = node.at;
  return item_of(object, key, work_);
}

Value Evaluator::slice(const Expression& node, const Scope& scope) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    parts[i] = node.parts[i] == nullptr ? Value::none() : value(*node.parts[i], scope);
  }
  at_ = node.at;
  return slice_of(parts[0], parts[1], parts[2], parts[3], work_);
}

Arguments Evaluator::arguments(const Expression& node, const Scope& scope) {
  Arguments given;
  for (const Argument& argument : node.arguments) {
    Value evaluated = value(*argument.value, scope);
    if (argument.name.empty()) {
      given.by_place.push_back(std::move(evaluated));
    } else {
      given.by_name.emplace_back(argument.name, std::move(evaluated));
    }
  }
  return given;
}

Value Evaluator::filtered(const Expression& node, const Scope& scope) {
  const Value input = value(*node.parts[0], scope);
  const Arguments given = arguments(node, scope);
  at_ = node.at;
  return apply_filter(node.name, input, given, work_);
}

Value Evaluator::tested(const Expression& node, const Scope& scope) {
  const Value input = value(*node.parts[0], scope);
  const Arguments given = arguments(node, scope);
  at_ = node.at;
  return Value::of(apply_test(node.name, input, given, work_));
}

Value Evaluator::call(const Expression& node, const Scope& scope, const Value* caller) {
  const Value callee = value(*node.parts[0], scope);
  Arguments given = arguments(node, scope);
  if (caller != nullptr) given.by_name.emplace_back("caller", *caller);
  at_ = node.at;
  if (const Macro* macro = callee.macro()) return call_macro(*macro, std::move(given));
  if (const Method* method = callee.method()) return call_method(*method, given, work_);
  if (const Function* function = callee.function()) {
    return call_function(*function, given, now_, work_);
  }
  if (callee.is_undefined()) throw Failure(callee.why_undefined());
  throw Failure(fmt::format("a {} is not callable", callee.type_name()));
}

Value Evaluator::call_macro(const Macro& macro, Arguments arguments) {
  if (macros_ >= work_.limits().depth) {
    throw Failure(fmt::format("macro calls are nested more than {} deep", work_.limits().depth));
  }
  const Frame frame(&macros_);
  Scope scope(&macro.scope());
  bind(macro.definition(), std::move(arguments), &scope);
  MarkedText text;
  capture(macro.body(), scope, &text);
  return work_.text(std::move(text));
}

// The positional arguments beyond the parameters.
Value Evaluator::rest_of(const Arguments& arguments, size_t taken) {
  std::vector<Value> rest;
  for (size_t i = taken; i < arguments.by_place.size(); ++i) {
    rest.push_back(holdable(arguments.by_place[i]));
  }
  return work_.list(std::move(rest), ListKind::kTuple);
}

void Evaluator::bind(const MacroDefinition& definition, Arguments arguments, Scope* scope) {
  auto& named = arguments.by_name;
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    for (auto given = named.begin(); given != named.end(); ++given) {
      if (given->first != name) continue;
      Value found = std::move(given->second);
      named.erase(given);
      return found;
    }
    return std::nullopt;
  };
  const uint32_t called_at = at_;
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const Parameter& parameter = definition.parameters[i];
    std::optional<Value> given;
    if (i < arguments.by_place.size()) {
      given = arguments.by_place[i];
    } else {
      given = take(parameter.name);
    }
    if (!given && parameter.otherwise != nullptr) given = value(*parameter.otherwise, *scope);
    at_ = called_at;
    if (!given)
      given = Value::undefined(
          fmt::format("the argument for the parameter {} is missing", parameter.name));
    scope->set(parameter.name, std::move(*given));
  }
  const size_t taken = std::min(definition.parameters.size(), arguments.by_place.size());
  const bool names_caller =
      std::any_of(definition.parameters.begin(), definition.parameters.end(),
                  [](const Parameter& parameter) { return parameter.name == "caller"; });
  if (definition.uses_caller && !names_caller) {
    scope->set("caller",
               take("caller").value_or(Value::undefined("caller is used outside of a call block")));
  }
  if (definition.uses_kwargs) {
    std::vector<Dict::Entry> entries;
    for (auto& [name, given] : named) entries.emplace_back(work_.text(name), holdable(given));
    scope->set("kwargs", work_.dict(std::move(entries)));
  } else if (!named.empty()) {
    throw Failure(fmt::format("the macro {} has no parameter {}", definition.name, named[0].first));
  }
  if (definition.uses_varargs) {
    scope->set("varargs", rest_of(arguments, taken));
  } else if (arguments.by_place.size() > taken) {
    throw Failure(fmt::format("the macro {} takes at most {} arguments", definition.name, taken));
  }
}

}  // namespace fasa::jinja
