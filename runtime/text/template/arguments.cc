#include "runtime/text/template/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace fasa::jinja {

Bound::Bound(std::string_view callee, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters)
    : callee_(callee),
      parameters_(parameters),
      values_(parameters.size()),
      given_(parameters.size(), false) {
  if (arguments.by_place.size() > parameters_.size()) {
    throw Failure(fmt::format("{} takes at most {} arguments, not {}", callee_, parameters_.size(),
                              arguments.by_place.size()));
  }
  for (size_t i = 0; i < arguments.by_place.size(); ++i) {
    values_[i] = arguments.by_place[i];
    given_[i] = true;
  }
  for (const auto& [name, value] : arguments.by_name) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    const auto index = static_cast<size_t>(found - parameters_.begin());
    if (found == parameters_.end()) {
      throw Failure(fmt::format("{} has no parameter {}", callee_, name));
    }
    if (given_[index]) throw Failure(fmt::format("{} gets {} twice", callee_, name));
    values_[index] = value;
    given_[index] = true;
  }
}

const Value& Bound::at(size_t index) const {
  if (!given_[index]) {
    throw Failure(fmt::format("{} needs the argument {}", callee_, parameters_[index]));
  }
  return values_[index];
}

void Bound::fail(size_t index, std::string_view wanted) const {
  const Value& value = values_[index];
  if (value.is_undefined()) throw Failure(value.why_undefined());
  throw Failure(fmt::format("{}: {} is a {}; allowed: {}", callee_, parameters_[index],
                            value.type_name(), wanted));
}

const TextValue& Bound::text(size_t index) const {
  const TextValue* text = at(index).text();
  if (text == nullptr) fail(index, "a text");
  return *text;
}

int64_t Bound::integer_or(size_t index, int64_t otherwise) const {
  if (!given_[index]) return otherwise;
  const auto integer = values_[index].integer();
  if (!integer) fail(index, "a whole number");
  return *integer;
}

}  // namespace fasa::jinja
