// Filters that return numbers, and `default`.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "runtime/text/template/functions/filter_functions.h"
#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/operators.h"

namespace fasa::jinja {
namespace {

// A text in the form that Python's int() and float() accept: surrounding white space, a sign,
// single underscores between digits. nullopt if underscores are elsewhere.
std::optional<std::string> numeral(const std::string& text) {
  const auto kept = strip(text, nullptr, {});
  const size_t begin = kept.first, end = kept.second;
  std::string digits;
  for (size_t at = begin; at < end; ++at) {
    const auto is_digit = [&](size_t place) {
      return place >= begin && place < end && text[place] >= '0' && text[place] <= '9';
    };
    if (text[at] != '_') {
      digits += text[at];
    } else if (at == begin || !is_digit(at - 1) || !is_digit(at + 1)) {
      return std::nullopt;
    }
  }
  if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') digits.erase(0, 1);
  return digits;
}

std::optional<int64_t> parse_integer(const std::string& text) {
  const auto digits = numeral(text);
  if (!digits) return std::nullopt;
  int64_t value = 0;
  const auto read = std::from_chars(digits->data(), digits->data() + digits->size(), value);
  if (read.ptr != digits->data() + digits->size() || read.ptr == digits->data()) {
    return std::nullopt;
  }
  if (read.ec != std::errc()) throw Failure("a number exceeds 64 bits");
  return value;
}

std::optional<double> parse_float(const std::string& text) {
  const auto digits = numeral(text);
  // Reject "nan(...)", the only form that from_chars accepts and float() does not.
  if (!digits || digits->find('(') != std::string::npos) return std::nullopt;
  double value = 0;
  const auto read = std::from_chars(digits->data(), digits->data() + digits->size(), value);
  if (read.ptr != digits->data() + digits->size() || read.ptr == digits->data()) {
    return std::nullopt;
  }
  if (read.ec != std::errc()) throw Failure("a number exceeds 64 bits");
  return value;
}

std::optional<double> as_float(const Value& value) {
  if (value.is_undefined()) throw Failure(value.why_undefined());
  return value.is_text() ? parse_float(value.text()->text.bytes()) : value.number();
}

}  // namespace

Value filter_default(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool replaced = value.is_undefined() || (bound.truth_or(1, false) && !truth(value));
  if (!replaced) return value;
  return bound.has(0) ? bound.at(0) : work.text("");
}

Value filter_length(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("length", arguments, {});
  if (value.is_text()) work.step_bytes(value.text()->text.size());
  return Value::of(length_of(value));
}

Value filter_int(const Value& value, const Arguments& arguments, Work&) {
  const Bound bound("int", arguments, {"default", "base"});
  if (bound.integer_or(1, 10) != 10) throw Failure("int: only base 10 is supported");
  if (value.is_text()) {
    if (const auto integer = parse_integer(value.text()->text.bytes())) return Value::of(*integer);
  } else if (const auto integer = value.integer()) {
    return Value::of(*integer);
  }
  const auto number = as_float(value);
  if (!number || !std::isfinite(*number)) return bound.or_else(0, Value::of(int64_t{0}));
  if (std::abs(*number) >= 0x1p63) throw Failure("a number exceeds 64 bits");
  return Value::of(static_cast<int64_t>(*number));
}

Value filter_float(const Value& value, const Arguments& arguments, Work&) {
  const Bound bound("float", arguments, {"default"});
  const auto number = as_float(value);
  return number ? Value::of(*number) : bound.or_else(0, Value::of(0.0));
}

}  // namespace fasa::jinja
