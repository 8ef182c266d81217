// Filters on lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/template/attributes.h"
#include "runtime/text/template/functions/filter_functions.h"
#include "runtime/text/template/functions/filters.h"
#include "runtime/text/template/functions/tests.h"
#include "runtime/text/template/functions/text_edit.h"
#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/operators.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {
namespace {

Value folded(const Value& value, bool case_sensitive, Work& work) {
  if (case_sensitive || !value.is_text()) return value;
  return work.text(lower(value.text()->text));
}

// An item's sort keys: each of the comma-separated attributes, or the item itself.
std::vector<Value> sort_keys(const Value& item, const Value& attributes, bool case_sensitive,
                             Work& work) {
  std::vector<Value> keys;
  if (!attributes.is_text()) {
    keys.push_back(folded(path_of(item, attributes, work), case_sensitive, work));
    return keys;
  }
  const MarkedText& names = attributes.text()->text;
  for (const auto& [begin, end] : split_at(names.bytes(), ",", -1)) {
    const Value path = work.text(names.part(begin, end));
    keys.push_back(folded(path_of(item, path, work), case_sensitive, work));
  }
  return keys;
}

using Keyed = std::pair<std::vector<Value>, Value>;

// Stable: as in Python, `reverse` also keeps the order of equal items.
std::vector<Value> sorted(std::vector<Keyed> items, bool reverse, Work& work) {
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.first.size(); ++i) {
      if (!equal(a.first[i], b.first[i], work)) return less(a.first[i], b.first[i], work);
    }
    return false;
  });
  if (reverse) std::reverse(items.begin(), items.end());
  std::vector<Value> values;
  for (Keyed& item : items) values.push_back(std::move(item.second));
  return values;
}

Value extreme(std::string_view name, const Value& value, const Arguments& arguments, bool largest,
              Work& work) {
  const Bound bound(name, arguments, {"case_sensitive", "attribute"});
  const Value attribute = bound.or_else(1, Value::none());
  const bool case_sensitive = bound.truth_or(0, false);
  const std::vector<Value> items = items_of(value, work);
  if (items.empty()) return Value::undefined(fmt::format("{}: the sequence is empty", name));
  const auto key = [&](const Value& item) {
    return folded(path_of(item, attribute, work), case_sensitive, work);
  };
  size_t best = 0;
  Value best_key = key(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value candidate = key(items[i]);
    if (largest ? less(best_key, candidate, work) : less(candidate, best_key, work)) {
      best = i;
      best_key = std::move(candidate);
    }
  }
  return items[best];
}

// The items for which a test holds, or does not hold. `by_attribute`: the test applies to the
// attribute that the first argument names.
Value selected(const Value& value, const Arguments& arguments, bool by_attribute, bool wanted,
               Work& work) {
  if (!truth(value)) return work.list({}, ListKind::kIterator);
  const size_t skip = by_attribute ? 1 : 0;
  const std::vector<Value>& given = arguments.by_place;
  if (given.size() < skip) throw Failure("the name of the attribute is missing");
  Arguments rest{{}, arguments.by_name};
  std::string_view test;
  if (given.size() > skip) {
    if (!given[skip].is_text()) throw Failure("the name of the test is not a string");
    test = given[skip].text()->text.bytes();
    rest.by_place.assign(given.begin() + static_cast<ptrdiff_t>(skip) + 1, given.end());
  }
  std::vector<Value> kept;
  for (Value& item : items_of(value, work)) {
    const Value looked_at = by_attribute ? path_of(item, given[0], work) : item;
    const bool holds = test.empty() ? truth(looked_at) : apply_test(test, looked_at, rest, work);
    if (holds == wanted) kept.push_back(std::move(item));
  }
  return work.list(std::move(kept), ListKind::kIterator);
}

// Keys of `unique` may also be tuples of keys.
bool is_key_tuple(const Value& value) {
  const List* list = value.list();
  return list != nullptr && list->kind() == ListKind::kTuple &&
         std::all_of(list->items().begin(), list->items().end(), is_key);
}

Value mapped_attribute(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("map", Arguments{{}, arguments.by_name}, {"attribute", "default"});
  std::vector<Value> mapped;
  for (const Value& item : items_of(value, work)) {
    mapped.push_back(path_of(item, bound.at(0), work, bound.absent(1) ? nullptr : &bound.at(1)));
  }
  return work.list(std::move(mapped), ListKind::kIterator);
}

}  // namespace

Value filter_list(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("list", arguments, {});
  return work.list(items_of(value, work));
}

Value filter_items(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("items", arguments, {});
  if (value.is_undefined()) return work.list({}, ListKind::kIterator);
  const Dict* dict = value.dict();
  if (dict == nullptr) throw Failure(fmt::format("items: a {} is not a dict", value.type_name()));
  return work.list(pairs_of(*dict, work), ListKind::kIterator);
}

Value filter_first(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("first", arguments, {});
  const std::vector<Value> items = items_of(value, work);
  return items.empty() ? Value::undefined("first: the sequence is empty") : items.front();
}

Value filter_last(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("last", arguments, {});
  if (value.list() != nullptr && value.list()->kind() == ListKind::kIterator) {
    throw Failure("last does not support iterators; make a list of it with the filter list");
  }
  const std::vector<Value> items = items_of(value, work);
  return items.empty() ? Value::undefined("last: the sequence is empty") : items.back();
}

Value filter_dictsort(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const Dict* dict = value.dict();
  if (dict == nullptr) {
    throw Failure(value.is_undefined()
                      ? value.why_undefined()
                      : fmt::format("dictsort does not support a {}", value.type_name()));
  }
  const std::string by = bound.has(1) ? bound.text(1).text.bytes() : "key";
  if (by != "key" && by != "value") throw Failure("dictsort: by is neither \"key\" nor \"value\"");
  const bool case_sensitive = bound.truth_or(0, false);
  std::vector<Keyed> items;
  for (const Value& pair : pairs_of(*dict, work)) {
    const Value& key = pair.list()->items()[by == "key" ? 0 : 1];
    items.push_back({{folded(key, case_sensitive, work)}, pair});
  }
  return work.list(sorted(std::move(items), bound.truth_or(2, false), work));
}

Value filter_sort(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Value attributes = bound.or_else(2, Value::none());
  std::vector<Keyed> items;
  for (Value& item : items_of(value, work)) {
    std::vector<Value> keys = sort_keys(item, attributes, bound.truth_or(1, false), work);
    items.emplace_back(std::move(keys), std::move(item));
  }
  return work.list(sorted(std::move(items), bound.truth_or(0, false), work));
}

Value filter_unique(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const Value attribute = bound.or_else(1, Value::none());
  std::vector<Value> seen, kept;
  for (Value& item : items_of(value, work)) {
    Value key = folded(path_of(item, attribute, work), bound.truth_or(0, false), work);
    if (!is_key(key) && !key.is_undefined() && !is_key_tuple(key)) {
      throw Failure(fmt::format("unique does not support a {}", key.type_name()));
    }
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return equal(key, other, work); });
    if (known) continue;
    seen.push_back(std::move(key));
    kept.push_back(std::move(item));
  }
  return work.list(std::move(kept), ListKind::kIterator);
}

Value filter_min(const Value& value, const Arguments& arguments, Work& work) {
  return extreme("min", value, arguments, false, work);
}
Value filter_max(const Value& value, const Arguments& arguments, Work& work) {
  return extreme("max", value, arguments, true, work);
}

Value filter_map(const Value& value, const Arguments& arguments, Work& work) {
  if (!truth(value)) return work.list({}, ListKind::kIterator);
  if (arguments.by_place.empty()) return mapped_attribute(value, arguments, work);
  if (!arguments.by_place[0].is_text())
    throw Failure("map: the name of the filter is not a string");
  const std::string_view filter = arguments.by_place[0].text()->text.bytes();
  const Arguments rest{{arguments.by_place.begin() + 1, arguments.by_place.end()},
                       arguments.by_name};
  std::vector<Value> mapped;
  for (const Value& item : items_of(value, work)) {
    mapped.push_back(apply_filter(filter, item, rest, work));
  }
  return work.list(std::move(mapped), ListKind::kIterator);
}

Value filter_select(const Value& value, const Arguments& arguments, Work& work) {
  return selected(value, arguments, false, true, work);
}
Value filter_reject(const Value& value, const Arguments& arguments, Work& work) {
  return selected(value, arguments, false, false, work);
}
Value filter_selectattr(const Value& value, const Arguments& arguments, Work& work) {
  return selected(value, arguments, true, true, work);
}
Value filter_rejectattr(const Value& value, const Arguments& arguments, Work& work) {
  return selected(value, arguments, true, false, work);
}

}  // namespace fasa::jinja
