// Arguments of a call of a filter, test, method, function or macro.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/template/value.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {

struct Arguments {
  std::vector<Value> by_place;
  std::vector<std::pair<std::string, Value>> by_name;

  bool empty() const { return by_place.empty() && by_name.empty(); }
};

// Arguments matched to a callee's parameters, in parameter order.
class Bound {
 public:
  // Throws Failure for arguments that are too many, unknown or given twice. `callee`: its name in
  // errors.
  Bound(std::string_view callee, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters);

  bool has(size_t index) const { return given_[index]; }
  // Throws Failure if the argument was not given.
  const Value& at(size_t index) const;
  const Value& or_else(size_t index, const Value& otherwise) const {
    return given_[index] ? values_[index] : otherwise;
  }
  bool truth_or(size_t index, bool otherwise) const {
    return given_[index] ? truth(values_[index]) : otherwise;
  }
  // The argument as a text. Throws Failure for another kind.
  const TextValue& text(size_t index) const;
  int64_t integer_or(size_t index, int64_t otherwise) const;
  // Whether the argument was not given, or is none.
  bool absent(size_t index) const { return !given_[index] || values_[index].is_none(); }

 private:
  [[noreturn]] void fail(size_t index, std::string_view wanted) const;

  std::string callee_;
  std::vector<std::string_view> parameters_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

}  // namespace fasa::jinja
