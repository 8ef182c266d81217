// References within a schema, and schemas that consist of several.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/text/grammar/schema_error.h"
#include "runtime/text/grammar/schema_reference.h"
#include "runtime/text/grammar/schema_words.h"

namespace fasa::text {
namespace {

using Json = OrderedJson;

}  // namespace

// The list of a keyword that combines schemas; null: there is none, or the members and items that
// the schema describes beside it are enforced instead.
const OrderedJson* SchemaGrammar::combination(const Json& schema, const char* keyword,
                                              const std::string& place) {
  const auto found = schema.find(keyword);
  if (found == schema.end() || found->is_null()) return nullptr;
  const std::string inner = place + "." + keyword;
  if (!found->is_array() || found->empty()) {
    throw SchemaError(inner, shown(*found) + "; allowed: a list of schemas");
  }
  if (keyword == std::string_view("allOf")) return &*found;
  for (const char* const own : {"properties", "items", "prefixItems", "enum", "const"}) {
    if (!schema.contains(own)) continue;
    ignore(inner);
    return nullptr;
  }
  return &*found;
}

// The schema and those of its allOf as one. The first of two different limits holds.
const OrderedJson& SchemaGrammar::merged(const Json& schema, const std::string& place) {
  Json whole = schema;
  whole.erase("allOf");
  std::vector<std::pair<const Json*, std::string>> parts;
  const auto add_parts = [&](const Json& list, const std::string& from) {
    for (size_t i = 0; i < list.size(); ++i) {
      parts.emplace_back(&list[i], fmt::format("{}.allOf[{}]", from, i));
    }
  };
  const auto add = [&](const Json& part, const std::string& from) {
    for (const auto& [keyword, value] : part.items()) {
      if (keyword == "allOf" && value.is_array()) {
        add_parts(value, from);
      } else if (!whole.contains(keyword)) {
        whole[keyword] = value;
      } else if (keyword == "properties" && value.is_object() && whole[keyword].is_object()) {
        for (const auto& [name, property] : value.items()) {
          if (!whole[keyword].contains(name)) whole[keyword][name] = property;
        }
      } else if (keyword == "required" && value.is_array() && whole[keyword].is_array()) {
        for (const Json& name : value) whole[keyword].push_back(name);
      } else if (whole[keyword] != value && !is_annotation(keyword)) {
        ignore(from + "." + keyword);
      }
    }
  };
  add_parts(schema["allOf"], place);
  std::set<const Json*> added{&schema};  // references may be circular
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string from = parts[i].second;
    const Json& part = resolved(*parts[i].first, from);
    if (part.is_object() && added.insert(&part).second) add(part, from);
  }
  merged_.push_back(std::move(whole));
  return merged_.back();
}

const Json& SchemaGrammar::target_of(const Json& reference, const std::string& place) const {
  const std::string text = reference.is_string() ? reference.get<std::string>() : "";
  if (const Json* const target = reference_target(root_, text)) return *target;
  throw SchemaError(place, shown(reference) + "; allowed: a reference into this schema, #/...");
}

const Json& SchemaGrammar::resolved(const Json& schema, const std::string& place) const {
  constexpr int kMaxSteps = 32;
  const Json* at = &schema;
  for (int step = 0; step < kMaxSteps; ++step) {
    if (!at->is_object() || !at->contains("$ref")) return *at;
    at = &target_of((*at)["$ref"], place);
  }
  throw SchemaError(place, "is a circular reference");
}

// Requires that no value matches two alternatives: their types differ, or a member's value does.
void SchemaGrammar::require_disjoint(const Json& list, const std::string& place) const {
  const auto tags_of = [&](const Json& schema) {
    std::map<std::string, std::set<std::string>> tags;  // required members and their allowed values
    if (!schema.is_object() || !schema.contains("properties") || !schema.contains("required")) {
      return tags;
    }
    for (const auto& [name, value] : schema["properties"].items()) {
      const Json& required = schema["required"];
      if (std::find(required.begin(), required.end(), name) == required.end()) continue;
      const Json& inner = resolved(value, place);
      if (!inner.is_object()) continue;
      if (inner.contains("const")) tags[name] = {inner["const"].dump()};
      if (!inner.contains("enum")) continue;
      for (const Json& one : inner["enum"]) tags[name].insert(one.dump());
    }
    return tags;
  };
  const auto apart = [&](const Json& a, const Json& b) {
    if (!a.is_object() || !b.is_object()) return false;
    const auto kinds = kinds_of(a, place), others = kinds_of(b, place);
    const auto shares = [&](const std::string& kind) {
      return is_among(others, kind) || (kind == "integer" && is_among(others, "number")) ||
             (kind == "number" && is_among(others, "integer"));
    };
    const bool known = a.contains("type") && b.contains("type");
    if (known && std::none_of(kinds.begin(), kinds.end(), shares)) return true;
    const auto tags = tags_of(a), other_tags = tags_of(b);
    return std::any_of(tags.begin(), tags.end(), [&](const auto& tag) {
      const auto found = other_tags.find(tag.first);
      if (found == other_tags.end()) return false;
      return std::none_of(tag.second.begin(), tag.second.end(),
                          [&](const auto& value) { return found->second.contains(value); });
    });
  };
  if (list.size() > kMaxAlternatives) {
    throw SchemaError(place, fmt::format("{} schemas; allowed: {}", list.size(), kMaxAlternatives));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (apart(resolved(list[i], place), resolved(list[j], place))) continue;
      throw SchemaError(place,
                        fmt::format("schemas {} and {} can both match the same value; allowed: "
                                    "schemas of different types, or that differ in the const or "
                                    "enum of a required member; anyOf has no such limit",
                                    j, i));
    }
  }
}

}  // namespace fasa::text
