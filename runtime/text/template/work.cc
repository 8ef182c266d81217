#include "runtime/text/template/work.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace fasa::jinja {
namespace {

constexpr size_t kObjectBytes = 64;  // approximate bytes of an object without its contents

}  // namespace

void Work::step(uint64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps) {
    throw Failure(fmt::format("the template needs more than {} steps", limits_.steps));
  }
}

void Work::check_size(size_t bytes) const {
  if (bytes <= limits_.output_bytes) return;
  throw Failure(fmt::format("a string has more than {} bytes", limits_.output_bytes));
}

void Work::check_depth(int depth) const {
  if (depth <= limits_.depth) return;
  throw Failure(fmt::format("lists and dicts are nested more than {} deep", limits_.depth));
}

HeldBytes Work::hold(size_t bytes) {
  if (!bytes_.take(bytes)) {
    throw Failure(fmt::format("values need more than {} bytes", limits_.value_bytes));
  }
  return {&bytes_, bytes};
}

Value Work::text(MarkedText text, bool markup) {
  check_size(text.size());
  step_bytes(text.size());
  const size_t bytes = kObjectBytes + text.size() + text.runs().size() * sizeof(MarkedText::Run);
  HeldBytes held = hold(bytes);
  return Value::Store(
      std::make_shared<const TextValue>(TextValue{std::move(text), markup, std::move(held)}));
}

Value Work::list(std::vector<Value> items, ListKind kind) {
  step_items(items.size());
  HeldBytes held = hold(kObjectBytes + items.size() * sizeof(Value));
  auto list = std::make_shared<const List>(kind, std::move(items), std::move(held));
  check_depth(list->depth());
  return Value::Store(std::move(list));
}

Value Work::dict(std::vector<Dict::Entry> entries) {
  step_items(entries.size());
  for (const Dict::Entry& entry : entries) {
    if (is_key(entry.first)) continue;
    throw Failure(fmt::format("a {} cannot be a key of a dict", entry.first.type_name()));
  }
  HeldBytes held = hold(kObjectBytes + entries.size() * 2 * sizeof(Dict::Entry));
  auto dict = std::make_shared<const Dict>(std::move(entries), std::move(held));
  check_depth(dict->depth());
  return Value::Store(std::move(dict));
}

}  // namespace fasa::jinja
