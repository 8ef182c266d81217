#include "runtime/text/template/functions/tests.h"

#include <fmt/format.h>

#include <map>

#include "runtime/text/template/operators.h"

namespace fasa::jinja {
namespace {

using Test = bool (*)(const Value& value, const Arguments& arguments, Work& work);

// Wraps a test without arguments.
template <bool (*kHolds)(const Value&)>
bool plain(const Value& value, const Arguments& arguments, Work&) {
  const Bound bound("the test", arguments, {});
  return kHolds(value);
}

template <Comparison kComparison>
bool compared(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("the test", arguments, {"other"});
  return compare(kComparison, value, bound.at(0), work);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is_bool(); }
bool is_true(const Value& value) { return value.is_bool() && *value.boolean(); }
bool is_false(const Value& value) { return value.is_bool() && !*value.boolean(); }
bool is_integer(const Value& value) { return value.is_integer(); }
bool is_float(const Value& value) { return value.is_float(); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.dict() != nullptr; }
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.dict() != nullptr ||
         value.list() != nullptr || value.loop() != nullptr;
}
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.dict() != nullptr ||
         (value.list() != nullptr && value.list()->has_places());
}

bool divides(const Value& value, const Value& by, Work& work) {
  return equal(calculate(Arithmetic::kModulo, value, by, work), Value::of(int64_t{0}), work);
}
bool is_divisible(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("divisibleby", arguments, {"num"});
  return divides(value, bound.at(0), work);
}
bool is_even(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("even", arguments, {});
  return divides(value, Value::of(int64_t{2}), work);
}
bool is_odd(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("odd", arguments, {});
  const Value rest = calculate(Arithmetic::kModulo, value, Value::of(int64_t{2}), work);
  return equal(rest, Value::of(int64_t{1}), work);
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> known = {
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"none", plain<is_none>},
      {"boolean", plain<is_boolean>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"integer", plain<is_integer>},
      {"float", plain<is_float>},
      {"number", plain<is_number>},
      {"string", plain<is_string>},
      {"mapping", plain<is_mapping>},
      {"iterable", plain<is_iterable>},
      {"sequence", plain<is_sequence>},
      {"divisibleby", is_divisible},
      {"even", is_even},
      {"odd", is_odd},
      {"==", compared<Comparison::kEqual>},
      {"eq", compared<Comparison::kEqual>},
      {"equalto", compared<Comparison::kEqual>},
      {"!=", compared<Comparison::kNotEqual>},
      {"ne", compared<Comparison::kNotEqual>},
      {"<", compared<Comparison::kLess>},
      {"lt", compared<Comparison::kLess>},
      {"lessthan", compared<Comparison::kLess>},
      {"<=", compared<Comparison::kAtMost>},
      {"le", compared<Comparison::kAtMost>},
      {">", compared<Comparison::kGreater>},
      {"gt", compared<Comparison::kGreater>},
      {"greaterthan", compared<Comparison::kGreater>},
      {">=", compared<Comparison::kAtLeast>},
      {"ge", compared<Comparison::kAtLeast>},
      {"in", compared<Comparison::kIn>}};
  return known;
}

}  // namespace

bool is_test(std::string_view name) { return tests().contains(name); }

std::string unknown_test(std::string_view name) {
  return fmt::format("the test {} is not supported", name);
}

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Work& work) {
  const auto found = tests().find(name);
  if (found == tests().end()) throw Failure(unknown_test(name));
  work.step();
  return found->second(value, arguments, work);
}

}  // namespace fasa::jinja
