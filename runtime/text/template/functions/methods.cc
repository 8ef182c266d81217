#include "runtime/text/template/attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "runtime/text/template/functions/text_edit.h"
#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/operators.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {
namespace {

using TextMethod = Value (*)(const MarkedText& text, const Arguments& arguments, Work& work);
using DictMethod = Value (*)(const Dict& dict, const Arguments& arguments, Work& work);

Value stripped(const MarkedText& text, const Arguments& arguments, Sides sides, Work& work) {
  const Bound bound("strip", arguments, {"chars"});
  std::string_view characters;
  if (!bound.absent(0)) characters = bound.text(0).text.bytes();
  const auto [begin, end] = strip(text.bytes(), bound.absent(0) ? nullptr : &characters, sides);
  return work.text(text.part(begin, end));
}

Value strip_both(const MarkedText& text, const Arguments& arguments, Work& work) {
  return stripped(text, arguments, {}, work);
}
Value strip_left(const MarkedText& text, const Arguments& arguments, Work& work) {
  return stripped(text, arguments, {.right = false}, work);
}
Value strip_right(const MarkedText& text, const Arguments& arguments, Work& work) {
  return stripped(text, arguments, {.left = false}, work);
}

Value split_text(const MarkedText& text, const Arguments& arguments, Work& work) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const int64_t most = bound.integer_or(1, -1);
  std::vector<Value> parts;
  for (const auto& [begin, end] : bound.absent(0)
                                      ? split_at_space(text.bytes(), most)
                                      : split_at(text.bytes(), bound.text(0).text.bytes(), most)) {
    parts.push_back(work.text(text.part(begin, end)));
  }
  return work.list(std::move(parts));
}

// True if a text, or any text of a tuple, matches.
template <class Matches>
Value matches_any(std::string_view name, const Arguments& arguments, const Matches& matches) {
  const Bound bound(name, arguments, {"prefix"});
  const List* choices = bound.at(0).list();
  if (choices == nullptr || choices->kind() != ListKind::kTuple) {
    return Value::of(bool{matches(bound.text(0).text.bytes())});
  }
  return Value::of(
      std::any_of(choices->items().begin(), choices->items().end(), [&](const Value& choice) {
        if (!choice.is_text()) {
          throw Failure(fmt::format("{} takes texts", name));
        }
        return matches(choice.text()->text.bytes());
      }));
}

Value starts_with(const MarkedText& text, const Arguments& arguments, Work&) {
  return matches_any("startswith", arguments,
                     [&](const std::string& part) { return text.bytes().starts_with(part); });
}
Value ends_with(const MarkedText& text, const Arguments& arguments, Work&) {
  return matches_any("endswith", arguments,
                     [&](const std::string& part) { return text.bytes().ends_with(part); });
}

Value replace(const MarkedText& text, const Arguments& arguments, Work& work) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  return work.text(replaced(text, bound.text(0).text.bytes(), bound.text(1).text,
                            bound.integer_or(2, -1), work));
}

template <MarkedText (*kChange)(const MarkedText&)>
Value changed(const MarkedText& text, const Arguments& arguments, Work& work) {
  const Bound bound("a method that changes case", arguments, {});
  return work.text(kChange(text));
}

Value join(const MarkedText& text, const Arguments& arguments, Work& work) {
  const Bound bound("join", arguments, {"iterable"});
  MarkedText joined;
  bool first = true;
  for (const Value& item : items_of(bound.at(0), work)) {
    if (!item.is_text()) throw Failure(fmt::format("join: an item is a {}", item.type_name()));
    if (!std::exchange(first, false)) joined.append(text);
    joined.append(item.text()->text);
    work.check_size(joined.size());
  }
  return work.text(std::move(joined));
}

Value find(const MarkedText& text, const Arguments& arguments, Work& work) {
  const Bound bound("find", arguments, {"sub"});
  work.step_bytes(text.size());
  const size_t at = text.bytes().find(bound.text(0).text.bytes());
  if (at == std::string::npos) return Value::of(int64_t{-1});
  return Value::of(count_characters(std::string_view(text.bytes()).substr(0, at)));
}

Value count(const MarkedText& text, const Arguments& arguments, Work& work) {
  const Bound bound("count", arguments, {"sub"});
  const std::string& part = bound.text(0).text.bytes();
  work.step_bytes(text.size());
  if (part.empty()) return Value::of(count_characters(text.bytes()) + 1);
  return Value::of(static_cast<int64_t>(split_at(text.bytes(), part, -1).size()) - 1);
}

Value format(const MarkedText& text, const Arguments& arguments, Work& work) {
  return work.text(formatted(text, arguments, work));
}

const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> methods = {
      {"capitalize", changed<capitalize>},
      {"count", count},
      {"endswith", ends_with},
      {"find", find},
      {"format", format},
      {"join", join},
      {"lower", changed<lower>},
      {"lstrip", strip_left},
      {"replace", replace},
      {"rstrip", strip_right},
      {"split", split_text},
      {"startswith", starts_with},
      {"strip", strip_both},
      {"title", changed<title>},
      {"upper", changed<upper>}};
  return methods;
}

Value get(const Dict& dict, const Arguments& arguments, Work& work) {
  const Bound bound("get", arguments, {"key", "default"});
  const Value& key = bound.at(0);
  if (!is_key(key)) throw Failure(fmt::format("get: a {} cannot be a key", key.type_name()));
  work.step_items(key.is_text() ? 0 : dict.entries().size());
  const Value* found = dict.find(key);
  return found != nullptr ? *found : bound.or_else(1, Value::none());
}

Value items(const Dict& dict, const Arguments& arguments, Work& work) {
  const Bound bound("items", arguments, {});
  return work.list(pairs_of(dict, work), ListKind::kView);
}

Value keys(const Dict& dict, const Arguments& arguments, Work& work) {
  const Bound bound("keys", arguments, {});
  std::vector<Value> keys;
  for (const Dict::Entry& entry : dict.entries()) keys.push_back(entry.first);
  return work.list(std::move(keys), ListKind::kView);
}

Value values(const Dict& dict, const Arguments& arguments, Work& work) {
  const Bound bound("values", arguments, {});
  std::vector<Value> values;
  for (const Dict::Entry& entry : dict.entries()) values.push_back(entry.second);
  return work.list(std::move(values), ListKind::kView);
}

const std::map<std::string_view, DictMethod>& dict_methods() {
  static const std::map<std::string_view, DictMethod> methods = {
      {"get", get}, {"items", items}, {"keys", keys}, {"values", values}};
  return methods;
}

template <class Methods>
auto find_method(const Methods& methods, const Method& method) {
  const auto found = methods.find(method.name);
  if (found != methods.end()) return found->second;
  std::string known;
  for (const auto& entry : methods)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.first);
  throw Failure(fmt::format("the method {} of a {} is not supported; supported: {}", method.name,
                            method.object.type_name(), known));
}

}  // namespace

Value call_method(const Method& method, const Arguments& arguments, Work& work) {
  if (const TextValue* text = method.object.text()) {
    if (text->markup) throw Failure("methods of a string marked safe are not supported");
    return find_method(text_methods(), method)(text->text, arguments, work);
  }
  if (const Dict* dict = method.object.dict()) {
    return find_method(dict_methods(), method)(*dict, arguments, work);
  }
  throw Failure(fmt::format("the method {} of a {} is not supported", method.name,
                            method.object.type_name()));
}

}  // namespace fasa::jinja
