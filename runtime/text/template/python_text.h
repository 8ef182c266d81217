// Values as text: Python's str() and repr(), and json.dumps().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/text/template/value.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {

// str(): a text is unchanged and keeps its origins. Throws Failure for values that Python shows as
// an address: macros, methods, iterators.
MarkedText str_of(const Value& value, Work& work);
std::string repr_of(double number);  // "1.0", "1e+16", "inf"
// A value in an error message: its repr(), truncated.
std::string shown(const Value& value, Work& work);

struct JsonStyle {
  bool ascii = false;                 // \u escapes for characters beyond ASCII
  std::optional<std::string> indent;  // indentation per level; none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps(): keys in insertion order, texts keep their origins. Throws Failure where json.dumps
// raises TypeError.
MarkedText json_of(const Value& value, const JsonStyle& style, Work& work);

}  // namespace fasa::jinja
