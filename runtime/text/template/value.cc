#include "runtime/text/template/value.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace fasa::jinja {
namespace {

int depth_of(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return deepest + 1;
}

bool equal_numbers(const Value& a, const Value& b) {
  if (const auto left = a.integer(), right = b.integer(); left && right) return *left == *right;
  if (a.large() && b.large()) return a.large()->digits == b.large()->digits;
  // Exact if one is a 64-bit integer: long double has a 64-bit mantissa here.
  const auto exact = [](const Value& value) {
    if (const LargeInteger* large = value.large()) return large->number;
    return value.integer() ? static_cast<long double>(*value.integer())
                           : static_cast<long double>(*value.number());
  };
  return exact(a) == exact(b);
}

}  // namespace

Value Value::large(std::string digits) {
  const long double number = std::strtold(digits.c_str(), nullptr);
  return Value(
      Store(std::make_shared<const LargeInteger>(LargeInteger{std::move(digits), number})));
}

std::optional<int64_t> Value::integer() const {
  if (const auto* value = std::get_if<int64_t>(&store_)) return *value;
  if (const auto* value = std::get_if<bool>(&store_)) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* value = std::get_if<double>(&store_)) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  if (const LargeInteger* value = large()) return static_cast<double>(value->number);
  return std::nullopt;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {
      "Undefined", "NoneType",  "bool",  "int",    "float",       "str",      "list",
      "dict",      "Namespace", "Macro", "method", "LoopContext", "function", "int"};
  if (const List* items = list()) {
    static constexpr std::string_view kLists[] = {"list", "tuple", "generator", "dict view",
                                                  "range"};
    return kLists[static_cast<size_t>(items->kind())];
  }
  return kNames[store_.index()];
}

const std::string& Value::why_undefined() const {
  static const std::string nothing = "the value is undefined";
  const auto* undefined = std::get_if<Undefined>(&store_);
  return undefined == nullptr || undefined->why == nullptr ? nothing : *undefined->why;
}

int Value::depth() const {
  if (const List* items = list()) return items->depth();
  if (const Dict* entries = dict()) return entries->depth();
  return 0;
}

List::List(ListKind kind, std::vector<Value> items, HeldBytes held)
    : kind_(kind), items_(std::move(items)), depth_(depth_of(items_)), held_(std::move(held)) {}

std::vector<Value> List::take() const {
  return kind_ == ListKind::kIterator ? std::exchange(items_, {}) : items_;
}

Dict::Dict(std::vector<Entry> entries, HeldBytes held) : held_(std::move(held)) {
  entries_.reserve(entries.size());
  for (Entry& entry : entries) {
    depth_ = std::max({depth_, entry.first.depth() + 1, entry.second.depth() + 1});
    if (const auto at = place(entry.first)) {
      entries_[*at].second = std::move(entry.second);
      continue;
    }
    if (const TextValue* text = entry.first.text()) {
      texts_.emplace(text->text.bytes(), entries_.size());
    }
    entries_.push_back(std::move(entry));
  }
}

std::optional<size_t> Dict::place(const Value& key) const {
  if (const TextValue* text = key.text()) {
    const auto found = texts_.find(text->text.bytes());
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }
  if (texts_.size() == entries_.size()) return std::nullopt;
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return equal_keys(entry.first, key); });
  if (found == entries_.end()) return std::nullopt;
  return static_cast<size_t>(found - entries_.begin());
}

const Value* Dict::find(std::string_view key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  const auto at = place(key);
  return at ? &entries_[*at].second : nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const auto& member) { return member.first == name; });
  return found == members_.end() ? nullptr : &found->second;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [known, held] : members_) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  members_.emplace_back(name, std::move(value));
}

bool equal_keys(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.text() != nullptr && b.text() != nullptr) {
    return a.text()->text.bytes() == b.text()->text.bytes();
  }
  return a.is_none() && b.is_none();
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = value.number()) return *number != 0;
  if (const TextValue* text = value.text()) return !text->text.empty();
  if (const List* list = value.list()) {
    return list->kind() == ListKind::kIterator || !list->items().empty();
  }
  if (const Dict* dict = value.dict()) return !dict->entries().empty();
  return true;
}

bool is_key(const Value& value) { return value.is_text() || value.is_number() || value.is_none(); }

}  // namespace fasa::jinja
