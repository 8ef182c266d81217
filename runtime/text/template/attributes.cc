#include "runtime/text/template/attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {
namespace {

// Attributes of Python's types. Items with these names are reachable by brackets only.
constexpr std::string_view kTextMethods[] = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
// Methods that would change a value, which templates may not do.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value method(const Value& object, std::string_view name) {
  return Value::Store(std::make_shared<const Method>(Method{object, std::string(name)}));
}

Value refused(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("{} would change a {}; templates may not change values", name,
                                      object.type_name()));
}

Value missing(const Value& object, const std::string& name) {
  return Value::undefined(fmt::format("a {} has no {}", object.type_name(), name));
}

// Attributes of the type itself; nullopt if it has none of this name.
std::optional<Value> own_attribute(const Value& object, std::string_view name) {
  if (object.is_text() && is_among(kTextMethods, name)) return method(object, name);
  if (object.dict() != nullptr) {
    if (is_among(kDictChanges, name)) return refused(object, name);
    if (is_among(kDictMethods, name)) return method(object, name);
  }
  if (const List* list = object.list()) {
    if (list->kind() == ListKind::kList && is_among(kListChanges, name)) {
      return refused(object, name);
    }
    if (list->kind() == ListKind::kList && is_among(kListMethods, name)) {
      return method(object, name);
    }
    const bool fixed = list->kind() == ListKind::kTuple || list->kind() == ListKind::kRange;
    if (fixed && is_among(kTupleMethods, name)) {
      return method(object, name);
    }
  }
  if (const Namespace* members = object.name_space()) {
    if (const Value* member = members->find(name)) return *member;
  }
  return std::nullopt;
}

std::optional<Value> loop_attribute(const Loop& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index());
  const auto length = static_cast<int64_t>(loop.items().size());
  if (name == "index0") return Value::of(index);
  if (name == "index") return Value::of(index + 1);
  if (name == "revindex0") return Value::of(length - index - 1);
  if (name == "revindex") return Value::of(length - index);
  if (name == "length") return Value::of(length);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(index + 1 == length);
  if (name == "previtem") {
    return index == 0 ? Value::undefined("there is no item before the first")
                      : loop.items()[loop.index() - 1];
  }
  if (name == "nextitem") {
    return index + 1 == length ? Value::undefined("there is no item behind the last")
                               : loop.items()[loop.index() + 1];
  }
  if (name == "cycle" || name == "changed" || name == "depth" || name == "depth0") {
    throw Failure(fmt::format("loop.{} is not supported", name));
  }
  return std::nullopt;
}

Value text_item(const TextValue& value, int64_t index, const Value& object, Work& work) {
  const std::string& bytes = value.text.bytes();
  work.step_bytes(bytes.size());
  const auto length = count_characters(bytes);
  const int64_t place = index < 0 ? index + length : index;
  if (place < 0 || place >= length) return missing(object, fmt::format("character {}", index));
  const size_t begin = offset_of_character(bytes, static_cast<size_t>(place));
  return work.text(value.text.part(begin, begin + character_at(bytes, begin).size), value.markup);
}

Value list_item(const List& list, int64_t index, const Value& object) {
  const auto length = static_cast<int64_t>(list.items().size());
  const int64_t place = index < 0 ? index + length : index;
  if (place < 0 || place >= length) return missing(object, fmt::format("item {}", index));
  return list.items()[static_cast<size_t>(place)];
}

int64_t clamp_bound(int64_t bound, int64_t length, int64_t low, int64_t high) {
  return std::clamp(bound < 0 ? bound + length : bound, low, high);
}

int64_t bound_of(const Value& value, std::string_view what) {
  if (const auto integer = value.integer()) return *integer;
  if (value.is_undefined()) throw Failure(value.why_undefined());
  throw Failure(fmt::format("the {} of a slice is a {}; allowed: a whole number or none", what,
                            value.type_name()));
}

// Python's slice.indices: the indexes that a slice selects.
std::vector<size_t> sliced(int64_t length, const Value& begin, const Value& end,
                           const Value& step) {
  const int64_t stride = step.is_none() ? 1 : bound_of(step, "step");
  if (stride == 0) throw Failure("the step of a slice is 0; allowed: any other whole number");
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
  const int64_t first = begin.is_none() ? (stride > 0 ? low : high)
                                        : clamp_bound(bound_of(begin, "begin"), length, low, high);
  const int64_t last = end.is_none() ? (stride > 0 ? high : low)
                                     : clamp_bound(bound_of(end, "end"), length, low, high);
  std::vector<size_t> places;
  const int64_t reach = stride > 0 ? last - first : first - last;
  const int64_t magnitude = stride > 0 ? stride : stride == INT64_MIN ? INT64_MAX : -stride;
  for (int64_t taken = 0; taken < reach; taken += magnitude) {
    places.push_back(static_cast<size_t>(stride > 0 ? first + taken : first - taken));
    if (magnitude >= reach - taken) break;
  }
  return places;
}

Value sliced_text(const TextValue& value, const Value& begin, const Value& end, const Value& step,
                  Work& work) {
  const std::string& bytes = value.text.bytes();
  work.step_bytes(bytes.size());
  std::vector<size_t> offsets;
  for (size_t at = 0; at < bytes.size(); at += character_at(bytes, at).size) offsets.push_back(at);
  offsets.push_back(bytes.size());
  const auto places = sliced(static_cast<int64_t>(offsets.size()) - 1, begin, end, step);
  MarkedText text;
  if (!places.empty() && places.back() - places.front() + 1 == places.size()) {
    text = value.text.part(offsets[places.front()], offsets[places.back() + 1]);
  } else {
    for (const size_t place : places) text.append(value.text, offsets[place], offsets[place + 1]);
  }
  return work.text(std::move(text), value.markup);
}

}  // namespace

Value attribute_of(const Value& object, std::string_view name, Work& work) {
  if (object.is_undefined()) throw Failure(object.why_undefined());
  if (auto own = own_attribute(object, name)) return *own;
  if (const Loop* loop = object.loop()) {
    if (auto found = loop_attribute(*loop, name)) return *found;
  }
  if (const Dict* dict = object.dict()) {
    work.step();
    if (const Value* found = dict->find(name)) return *found;
  }
  return missing(object, std::string(name));
}

Value item_of(const Value& object, const Value& key, Work& work) {
  if (object.is_undefined()) throw Failure(object.why_undefined());
  if (const Dict* dict = object.dict(); dict != nullptr && is_key(key)) {
    work.step_items(key.is_text() ? 0 : dict->entries().size());
    if (const Value* found = dict->find(key)) return *found;
  }
  if (const auto index = key.integer()) {
    if (const TextValue* text = object.text()) return text_item(*text, *index, object, work);
    const List* list = object.list();
    if (list != nullptr && list->has_places()) return list_item(*list, *index, object);
  }
  if (const TextValue* name = key.text()) {
    if (auto own = own_attribute(object, name->text.bytes())) return *own;
    if (const Loop* loop = object.loop()) {
      if (auto found = loop_attribute(*loop, name->text.bytes())) return *found;
    }
  }
  return missing(object, shown(key, work));
}

Value path_of(const Value& object, const Value& path, Work& work, const Value* otherwise) {
  const TextValue* text = path.text();
  Value value = object;
  if (text == nullptr) {
    if (!path.is_none()) value = item_of(object, path, work);
    return value.is_undefined() && otherwise != nullptr ? *otherwise : value;
  }
  const std::string& bytes = text->text.bytes();
  for (size_t begin = 0; begin <= bytes.size();) {
    const size_t end = std::min(bytes.find('.', begin), bytes.size());
    const std::string part = bytes.substr(begin, end - begin);
    const bool digits = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    value = item_of(value, digits ? Value::of(int64_t{std::stoll(part)}) : work.text(part), work);
    if (value.is_undefined() && otherwise != nullptr) value = *otherwise;
    begin = end + 1;
  }
  return value;
}

Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& step,
               Work& work) {
  if (object.is_undefined()) throw Failure(object.why_undefined());
  if (const TextValue* text = object.text()) return sliced_text(*text, begin, end, step, work);
  const List* list = object.list();
  if (list == nullptr || !list->has_places()) {
    throw Failure(fmt::format("a {} cannot be sliced", object.type_name()));
  }
  std::vector<Value> items;
  for (const size_t place : sliced(static_cast<int64_t>(list->items().size()), begin, end, step)) {
    items.push_back(list->items()[place]);
  }
  return work.list(std::move(items), list->kind());
}

}  // namespace fasa::jinja
