// Resource accounting of one rendering: its remaining steps and bytes, and the values it creates.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/template/limits.h"
#include "runtime/text/template/value.h"

namespace fasa::jinja {

// An error without its position in the template, which the evaluator adds.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message) : std::runtime_error(message) {}
};

// All functions throw Failure if a limit is reached. Must outlive the values that it creates.
class Work {
 public:
  explicit Work(const Limits& limits) : limits_(limits), bytes_(limits.value_bytes) {}

  const Limits& limits() const { return limits_; }
  void step(uint64_t count = 1);
  void step_bytes(size_t bytes) { step(1 + bytes / 256); }
  void step_items(size_t items) { step(1 + items / 8); }

  Value text(MarkedText text, bool markup = false);
  Value text(std::string_view bytes) { return text(MarkedText(bytes, Origin::kTemplate)); }
  Value list(std::vector<Value> items, ListKind kind = ListKind::kList);
  Value dict(std::vector<Dict::Entry> entries);
  void check_size(size_t bytes) const;  // of a text being built

 private:
  HeldBytes hold(size_t bytes);
  void check_depth(int depth) const;

  Limits limits_;
  uint64_t steps_ = 0;
  ByteCount bytes_;
};

}  // namespace fasa::jinja
