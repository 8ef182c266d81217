// Python's operators on values. All throw Failure where Python raises an error such as TypeError.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/text/template/value.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {

enum class Arithmetic : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kAtMost,
  kGreater,
  kAtLeast,
  kIn,
  kNotIn
};

Value calculate(Arithmetic operation, const Value& a, const Value& b, Work& work);
Value negated(const Value& value);
bool compare(Comparison comparison, const Value& a, const Value& b, Work& work);
bool equal(const Value& a, const Value& b, Work& work);
bool less(const Value& a, const Value& b, Work& work);
bool contains(const Value& container, const Value& item, Work& work);

// The items that a `for` iterates over: items, keys or characters; none if undefined. Empties an
// iterator.
std::vector<Value> items_of(const Value& value, Work& work);
// A dict's entries as (key, value) tuples.
std::vector<Value> pairs_of(const Dict& dict, Work& work);
int64_t length_of(const Value& value);
MarkedText escaped_html(const MarkedText& text);

}  // namespace fasa::jinja
