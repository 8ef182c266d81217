#include "runtime/text/template/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_operands(std::string_view symbol, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) throw Failure(value->why_undefined());
  }
  throw Failure(
      fmt::format("{} does not support operands {} and {}", symbol, a.type_name(), b.type_name()));
}

[[noreturn]] void fail_overflow() { throw Failure("a number exceeds 64 bits"); }

int64_t plus(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) fail_overflow();
  return result;
}

int64_t minus(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
  return result;
}

int64_t times(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
  return result;
}

int64_t integer_power(int64_t base, int64_t exponent, Work& work) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {
    work.step();
    result = times(result, base);
  }
  return result;
}

// As in Python: rounds to minus infinity, and the remainder has the divisor's sign.
int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Failure("division by zero");
  if (b == -1) return minus(0, a);
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == 0) throw Failure("division by zero");
  if (b == -1) return 0;
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double float_remainder(double a, double b) {
  if (b == 0) throw Failure("division by zero");
  const double remainder = std::fmod(a, b);
  if (remainder != 0) return (remainder < 0) != (b < 0) ? remainder + b : remainder;
  return std::copysign(0.0, b);
}

double float_floor_quotient(double a, double b) {
  const double remainder = float_remainder(a, b);
  const double quotient = (a - remainder) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value integer_result(Arithmetic operation, int64_t a, int64_t b, Work& work) {
  switch (operation) {
    case Arithmetic::kAdd:
      return Value::of(plus(a, b));
    case Arithmetic::kSubtract:
      return Value::of(minus(a, b));
    case Arithmetic::kMultiply:
      return Value::of(times(a, b));
    case Arithmetic::kDivide:
      if (b == 0) throw Failure("division by zero");
      return Value::of(static_cast<double>(a) / static_cast<double>(b));
    case Arithmetic::kFloorDivide:
      return Value::of(floor_divide(a, b));
    case Arithmetic::kModulo:
      return Value::of(floor_remainder(a, b));
    default:
      if (b < 0) {
        if (a == 0) throw Failure("0 cannot be raised to a negative power");
        return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      return Value::of(integer_power(a, b, work));
  }
}

Value float_result(Arithmetic operation, double a, double b) {
  switch (operation) {
    case Arithmetic::kAdd:
      return Value::of(a + b);
    case Arithmetic::kSubtract:
      return Value::of(a - b);
    case Arithmetic::kMultiply:
      return Value::of(a * b);
    case Arithmetic::kDivide:
      if (b == 0) throw Failure("division by zero");
      return Value::of(a / b);
    case Arithmetic::kFloorDivide:
      return Value::of(float_floor_quotient(a, b));
    case Arithmetic::kModulo:
      return Value::of(float_remainder(a, b));
    default:
      throw Failure("** supports whole numbers only");
  }
}

// Concatenates two texts; if one is marked safe, the other is escaped.
Value joined(const TextValue& a, const TextValue& b, Work& work) {
  work.check_size(a.text.size() + b.text.size());
  const bool markup = a.markup || b.markup;
  MarkedText text = markup && !a.markup ? escaped_html(a.text) : a.text;
  text.append(markup && !b.markup ? escaped_html(b.text) : b.text);
  return work.text(std::move(text), markup);
}

Value repeated(const Value& value, int64_t factor, Work& work) {
  const auto count = static_cast<size_t>(std::max<int64_t>(factor, 0));
  if (const TextValue* text = value.text()) {
    if (count > 0 && text->text.size() > work.limits().output_bytes / count) {
      work.check_size(work.limits().output_bytes + 1);
    }
    MarkedText result;
    for (size_t i = 0; i < count && !text->text.empty(); ++i) result.append(text->text);
    return work.text(std::move(result), text->markup);
  }
  const std::vector<Value>& items = value.list()->items();
  std::vector<Value> result;
  for (size_t i = 0; i < count && !items.empty(); ++i) {
    work.step_items(items.size());
    result.insert(result.end(), items.begin(), items.end());
    if (i % 1024 == 0) work.check_size(result.size() * sizeof(Value));
  }
  return work.list(std::move(result), value.list()->kind());
}

bool is_sequence(const Value& value) {
  const List* list = value.list();
  return value.is_text() ||
         (list != nullptr && (list->kind() == ListKind::kList || list->kind() == ListKind::kTuple));
}

bool equal_lists(const List& a, const List& b, Work& work) {
  if (&a == &b) return true;
  if (a.kind() != b.kind() || a.kind() == ListKind::kIterator) return false;
  if (a.items().size() != b.items().size()) return false;
  for (size_t i = 0; i < a.items().size(); ++i) {
    if (!equal(a.items()[i], b.items()[i], work)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Work& work) {
  if (&a == &b) return true;
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other, work)) return false;
  }
  return true;
}

bool less_lists(const List& a, const List& b, Work& work) {
  const size_t shared = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < shared; ++i) {
    if (!equal(a.items()[i], b.items()[i], work)) return less(a.items()[i], b.items()[i], work);
  }
  return a.items().size() < b.items().size();
}

bool text_contains(const TextValue& text, const Value& item, Work& work) {
  const TextValue* part = item.text();
  if (part == nullptr) {
    throw Failure(fmt::format("in: a {} cannot be in a str", item.type_name()));
  }
  work.step_bytes(text.text.size());
  return text.text.bytes().find(part->text.bytes()) != std::string::npos;
}

}  // namespace

MarkedText escaped_html(const MarkedText& text) {
  MarkedText escaped;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    const size_t plain = std::min(bytes.find_first_of("&<>\"'", at), bytes.size());
    escaped.append(text, at, plain);
    if ((at = plain) == bytes.size()) break;
    const char character = bytes[at];
    escaped.append(character == '&'   ? "&amp;"
                   : character == '<' ? "&lt;"
                   : character == '>' ? "&gt;"
                   : character == '"' ? "&#34;"
                                      : "&#39;",
                   text.origin_at(at));
  }
  return escaped;
}

Value calculate(Arithmetic operation, const Value& a, const Value& b, Work& work) {
  if (a.is_number() && b.is_number()) {
    const auto left = a.integer(), right = b.integer();
    if (left && right) return integer_result(operation, *left, *right, work);
    return float_result(operation, *a.number(), *b.number());
  }
  if (operation == Arithmetic::kAdd) {
    if (a.is_text() && b.is_text()) return joined(*a.text(), *b.text(), work);
    const List* left = a.list();
    if (left != nullptr && b.list() != nullptr && left->kind() == b.list()->kind() &&
        is_sequence(a)) {
      std::vector<Value> items = left->items();
      items.insert(items.end(), b.list()->items().begin(), b.list()->items().end());
      return work.list(std::move(items), left->kind());
    }
  }
  if (operation == Arithmetic::kMultiply) {
    if (is_sequence(a) && b.integer()) return repeated(a, *b.integer(), work);
    if (is_sequence(b) && a.integer()) return repeated(b, *a.integer(), work);
  }
  if (operation == Arithmetic::kModulo && a.is_text()) {
    throw Failure("% of a string is not supported; use its method format");
  }
  fail_operands(kSymbols[static_cast<size_t>(operation)], a, b);
}

Value negated(const Value& value) {
  if (const auto integer = value.integer()) return Value::of(minus(0, *integer));
  if (const auto number = value.number()) return Value::of(-*number);
  if (value.is_undefined()) throw Failure(value.why_undefined());
  throw Failure(fmt::format("- does not support {}", value.type_name()));
}

bool equal(const Value& a, const Value& b, Work& work) {
  work.step();
  if (a.is_text() && b.is_text()) work.step_bytes(a.text()->text.size());
  if (is_key(a) || is_key(b)) return is_key(a) && is_key(b) && equal_keys(a, b);
  if (a.list() != nullptr && b.list() != nullptr) return equal_lists(*a.list(), *b.list(), work);
  if (a.dict() != nullptr && b.dict() != nullptr) return equal_dicts(*a.dict(), *b.dict(), work);
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (const Function* left = a.function(); left != nullptr && b.function() != nullptr) {
    return left->index == b.function()->index;
  }
  return (a.name_space() != nullptr && a.name_space() == b.name_space()) ||
         (a.macro() != nullptr && a.macro() == b.macro()) ||
         (a.loop() != nullptr && a.loop() == b.loop());
}

bool less(const Value& a, const Value& b, Work& work) {
  work.step();
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return *a.integer() < *b.integer();
    const auto wide = [](const Value& value) {
      return value.integer() ? static_cast<long double>(*value.integer())
                             : static_cast<long double>(*value.number());
    };
    return wide(a) < wide(b);
  }
  if (a.is_text() && b.is_text()) {
    // UTF-8 byte order is code point order.
    work.step_bytes(a.text()->text.size());
    return a.text()->text.bytes() < b.text()->text.bytes();
  }
  const List *left = a.list(), *right = b.list();
  if (left != nullptr && right != nullptr && left->kind() == right->kind() && is_sequence(a)) {
    return less_lists(*left, *right, work);
  }
  fail_operands("<", a, b);
}

bool contains(const Value& container, const Value& item, Work& work) {
  if (const TextValue* text = container.text()) return text_contains(*text, item, work);
  if (const Dict* dict = container.dict()) {
    work.step_items(is_key(item) && !item.is_text() ? dict->entries().size() : 0);
    if (!is_key(item)) {
      throw Failure(fmt::format("in: a {} cannot be a key of a dict", item.type_name()));
    }
    return dict->find(item) != nullptr;
  }
  for (const Value& candidate : items_of(container, work)) {
    if (equal(candidate, item, work)) return true;
  }
  return false;
}

bool compare(Comparison comparison, const Value& a, const Value& b, Work& work) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(a, b, work);
    case Comparison::kNotEqual:
      return !equal(a, b, work);
    case Comparison::kLess:
      return less(a, b, work);
    case Comparison::kGreater:
      return less(b, a, work);
    case Comparison::kAtMost:
      return less(a, b, work) || equal(a, b, work);
    case Comparison::kAtLeast:
      return less(b, a, work) || equal(a, b, work);
    case Comparison::kIn:
      return contains(b, a, work);
    default:
      return !contains(b, a, work);
  }
}

std::vector<Value> pairs_of(const Dict& dict, Work& work) {
  std::vector<Value> pairs;
  pairs.reserve(dict.entries().size());
  for (const auto& [key, value] : dict.entries()) {
    pairs.push_back(work.list({key, value}, ListKind::kTuple));
  }
  return pairs;
}

std::vector<Value> items_of(const Value& value, Work& work) {
  if (value.is_undefined()) return {};
  std::vector<Value> items;
  if (const List* list = value.list()) {
    items = list->take();
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
  } else if (const TextValue* text = value.text()) {
    const std::string& bytes = text->text.bytes();
    for (size_t at = 0, size = 0; at < bytes.size(); at += size) {
      size = character_at(bytes, at).size;
      items.push_back(work.text(text->text.part(at, at + size), text->markup));
    }
  } else {
    throw Failure(fmt::format("a {} is not iterable", value.type_name()));
  }
  work.step_items(items.size());
  return items;
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const TextValue* text = value.text()) {
    return count_characters(text->text.bytes());
  }
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->entries().size());
  if (const Loop* loop = value.loop()) return static_cast<int64_t>(loop->items().size());
  if (const List* list = value.list(); list != nullptr && list->kind() != ListKind::kIterator) {
    return static_cast<int64_t>(list->items().size());
  }
  throw Failure(fmt::format("a {} has no length", value.type_name()));
}

}  // namespace fasa::jinja
