#include "runtime/text/grammar/schema_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/text/cut_text.h"
#include "runtime/text/grammar/number_range.h"
#include "runtime/text/grammar/pattern_grammar.h"
#include "runtime/text/grammar/schema_error.h"

namespace fasa::text {
namespace {

using Json = OrderedJson;

constexpr std::string_view kAnnotations[] = {"title",     "description", "default",      "examples",
                                             "example",   "$schema",     "$id",          "$comment",
                                             "$defs",     "strict",      "deprecated",   "readOnly",
                                             "writeOnly", "definitions", "discriminator"};
// They narrow what the grammar allows.
constexpr std::string_view kNotEnforced[] = {"uniqueItems", "multipleOf"};
constexpr std::string_view kKinds[] = {"object", "array",   "string", "integer",
                                       "number", "boolean", "null"};

struct KindKeywords {
  std::string_view kind;
  std::vector<std::string_view> keywords;
};

const std::vector<KindKeywords>& keywords_of_kinds() {
  static const std::vector<KindKeywords> keywords = {
      {"object", {"properties", "required", "additionalProperties"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems"}},
      {"string", {"minLength", "maxLength", "format", "pattern"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}}};
  return keywords;
}

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string shown(const Json& json) {
  constexpr size_t kShown = 60;
  const std::string whole = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return std::string(text::cut_text(whole, kShown));
}

std::string kind_of_value(const Json& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_number_integer()) return "integer";
  if (value.is_number()) return "number";
  return value.is_boolean() ? "boolean" : "null";
}

bool has_kind(const Json& value, const std::vector<std::string>& kinds) {
  const std::string kind = kind_of_value(value);
  return is_among(kinds, kind) || (kind == "integer" && is_among(kinds, "number"));
}

// A limit on a length: an integer >= 0.
std::optional<int64_t> length_at(const Json& schema, const char* keyword, const std::string& place,
                                 int64_t most) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  const bool fits = found->is_number_integer() && *found >= 0 && *found <= most;
  if (!fits) {
    throw SchemaError(place + "." + keyword,
                      fmt::format("{}; allowed: a whole number from 0 to {}", shown(*found), most));
  }
  return found->get<int64_t>();
}

}  // namespace

SchemaGrammar::SchemaGrammar(ByteGrammar& grammar, const OrderedJson& schema, std::string place,
                             JsonDialect dialect)
    : grammar_(grammar),
      json_(grammar, std::move(dialect)),
      root_(schema),
      place_(std::move(place)) {}

ByteGrammar::Rule SchemaGrammar::build() { return value_of(root_, place_); }

std::vector<SchemaGrammar::Property> SchemaGrammar::build_members() {
  check_keywords(root_, place_);
  return properties_of(root_, place_);
}

ByteGrammar::Rule SchemaGrammar::value_of(const Json& schema, const std::string& place) {
  if (depth_ >= kMaxSchemas) {
    throw SchemaError(place,
                      fmt::format("is nested in more than {} schemas; nest fewer", kMaxSchemas));
  }
  ++depth_;
  const Rule rule = read(schema, place);
  --depth_;
  return rule;
}

ByteGrammar::Rule SchemaGrammar::read(const Json& schema, const std::string& place) {
  if (schema == true) return json_.value();
  if (!schema.is_object()) {
    throw SchemaError(place, shown(schema) + "; allowed: an object, or true");
  }
  if (const auto found = schema.find("$ref"); found != schema.end()) {
    check_alone(schema, "$ref", place);
    return reference(target_of(*found, place + ".$ref"), place + ".$ref");
  }
  for (const char* const keyword : {"anyOf", "oneOf", "allOf"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) continue;
    const std::string inner = place + "." + keyword;
    check_alone(schema, keyword, place);
    if (!found->is_array() || found->empty()) {
      throw SchemaError(inner, shown(*found) + "; allowed: a list of schemas");
    }
    if (keyword == std::string_view("allOf") && found->size() != 1) {
      throw SchemaError(inner, fmt::format("{} schemas; allowed: one", found->size()));
    }
    if (keyword == std::string_view("oneOf")) require_disjoint(*found, inner);
    return any_of(*found, inner);
  }
  const std::vector<std::string> kinds = kinds_of(schema, place);
  check_keywords(schema, place);
  if (schema.contains("enum") || schema.contains("const")) return one_of_values(schema, place);
  if (kinds.size() == std::size(kKinds)) return json_.value();
  const Rule rule = grammar_.new_rule();
  for (const std::string& kind : kinds) grammar_.add(rule, {kind_of(kind, schema, place)});
  return rule;
}

// A recursive schema refers to its own rule.
ByteGrammar::Rule SchemaGrammar::reference(const Json& target, const std::string& place) {
  const auto found = referred_.find(&target);
  if (found != referred_.end()) return found->second;
  const Rule rule = grammar_.new_rule();
  referred_.emplace(&target, rule);
  grammar_.add(rule, {value_of(target, place)});
  return rule;
}

ByteGrammar::Rule SchemaGrammar::any_of(const Json& list, const std::string& place) {
  const Rule rule = grammar_.new_rule();
  for (size_t i = 0; i < list.size(); ++i) {
    grammar_.add(rule, {value_of(list[i], fmt::format("{}[{}]", place, i))});
  }
  return rule;
}

ByteGrammar::Rule SchemaGrammar::one_of_values(const Json& schema, const std::string& place) {
  const bool is_const = schema.contains("const");
  if (is_const && schema.contains("enum")) {
    throw SchemaError(place + ".enum", "appears together with const; allowed: one of them");
  }
  const Json values = is_const ? Json::array({schema["const"]}) : schema["enum"];
  const std::string inner = place + (is_const ? ".const" : ".enum");
  if (!values.is_array() || values.empty()) {
    throw SchemaError(inner, shown(values) + "; allowed: a list of values");
  }
  for (const auto& [keyword, unused] : schema.items()) {
    const bool known = keyword == "enum" || keyword == "const" || keyword == "type";
    if (!known && !is_among(kAnnotations, keyword)) {
      throw SchemaError(place + "." + keyword,
                        "appears together with enum or const; allowed beside them: type");
    }
  }
  const std::vector<std::string> kinds = kinds_of(schema, place);
  const Rule rule = grammar_.new_rule();
  bool any = false;
  for (const Json& value : values) {
    if (schema.contains("type") && !has_kind(value, kinds)) continue;
    grammar_.add(rule, grammar_.literal(json_.spelled(value)));
    any = true;
  }
  if (!any)
    throw SchemaError(inner, "has no value of the schema's type; add one, or change the type");
  return rule;
}

// The types that the schema names; if it names none, those that its keywords apply to.
std::vector<std::string> SchemaGrammar::kinds_of(const Json& schema,
                                                 const std::string& place) const {
  std::vector<std::string> kinds;
  const auto found = schema.find("type");
  if (found != schema.end()) {
    const Json list = found->is_array() ? *found : Json::array({*found});
    for (const Json& kind : list) {
      if (!kind.is_string() || !is_among(kKinds, kind.get<std::string>())) {
        throw SchemaError(
            place + ".type",
            shown(*found) + "; allowed: object, array, string, integer, number, boolean, null");
      }
      kinds.push_back(kind.get<std::string>());
    }
    if (kinds.empty())
      throw SchemaError(place + ".type", "is an empty list; give at least one type");
    return kinds;
  }
  for (const KindKeywords& of : keywords_of_kinds()) {
    const bool used = std::any_of(of.keywords.begin(), of.keywords.end(), [&](const auto& keyword) {
      return schema.contains(std::string(keyword));
    });
    if (used) kinds.emplace_back(of.kind);
  }
  if (kinds.empty()) kinds.assign(std::begin(kKinds), std::end(kKinds));
  return kinds;
}

void SchemaGrammar::check_keywords(const Json& schema, const std::string& place) {
  for (const auto& member : schema.items()) {
    const std::string& keyword = member.key();
    if (is_among(kAnnotations, keyword) || keyword == "type" || keyword == "enum" ||
        keyword == "const") {
      continue;
    }
    if (is_among(kNotEnforced, keyword)) {
      if (keyword != "uniqueItems" || member.value() != false) ignore(place + "." + keyword);
      continue;
    }
    const auto& all = keywords_of_kinds();
    const auto of = std::find_if(all.begin(), all.end(), [&](const KindKeywords& one) {
      return is_among(one.keywords, keyword);
    });
    if (of == all.end()) {
      throw SchemaError(place + "." + keyword,
                        "is a keyword that this server does not support; remove it");
    }
  }
}

// Recursive schemas and several kinds pass a place more than once.
void SchemaGrammar::ignore(const std::string& place) {
  if (!is_among(ignored_, place)) ignored_.push_back(place);
}

void SchemaGrammar::check_alone(const Json& schema, const std::string& keyword,
                                const std::string& place) const {
  for (const auto& [other, unused] : schema.items()) {
    if (other == keyword || is_among(kAnnotations, other)) continue;
    throw SchemaError(
        place + "." + other,
        fmt::format(
            "appears together with {}, which this server does not support; remove one of them",
            keyword));
  }
}

ByteGrammar::Rule SchemaGrammar::kind_of(const std::string& kind, const Json& schema,
                                         const std::string& place) {
  if (kind == "object") return object(schema, place);
  if (kind == "array") return array(schema, place);
  if (kind == "string") return string(schema, place);
  if (kind == "integer") return integer(schema, place);
  if (kind == "number") return number(schema, place);
  if (kind == "null") return json_.literal("null");
  return json_.choice({json_.literal("true"), json_.literal("false")});
}

ByteGrammar::Rule SchemaGrammar::object(const Json& schema, const std::string& place) {
  const std::vector<Property> properties = properties_of(schema, place);
  if (!properties.empty()) return members(properties);
  const auto additional = schema.find("additionalProperties");
  if (additional == schema.end()) return json_.object_of(json_.member_of(json_.value()));
  if (*additional == false) return members({});
  const Rule value = value_of(*additional, place + ".additionalProperties");
  return json_.object_of(json_.member_of(value));
}

std::vector<SchemaGrammar::Property> SchemaGrammar::properties_of(const Json& schema,
                                                                  const std::string& place) {
  const auto at = [&](const char* keyword, const Json& otherwise) -> const Json& {
    const auto found = schema.find(keyword);
    return found == schema.end() ? otherwise : *found;
  };
  static const Json no_object = Json::object(), no_list = Json::array(), allowed = true;
  const Json& properties = at("properties", no_object);
  const Json& required = at("required", no_list);
  const Json& additional = at("additionalProperties", allowed);
  if (!properties.is_object()) {
    throw SchemaError(place + ".properties", shown(properties) + "; allowed: an object");
  }
  for (const Json* const list : {&properties, &required}) {
    if (list->size() <= kMaxMembers) continue;
    throw SchemaError(place + (list == &properties ? ".properties" : ".required"),
                      fmt::format("{} members; allowed: {}", list->size(), kMaxMembers));
  }
  const auto is_name = [](const Json& name) { return name.is_string(); };
  if (!required.is_array() || !std::all_of(required.begin(), required.end(), is_name)) {
    throw SchemaError(place + ".required", shown(required) + "; allowed: a list of names");
  }
  std::vector<Property> list;
  for (const auto& [name, value] : properties.items()) {
    list.push_back({name, value_of(value, fmt::format("{}.properties.{}", place, name)),
                    std::find(required.begin(), required.end(), name) != required.end()});
  }
  for (const Json& name : required) {
    const auto text = name.get<std::string>();
    const bool there = std::any_of(list.begin(), list.end(),
                                   [&](const Property& one) { return one.name == text; });
    if (there) continue;
    if (additional == false) {
      throw SchemaError(
          place + ".required",
          shown(name) +
              " is not a property, and additionalProperties is false; add it to properties");
    }
    list.push_back({text, value_of(additional, place + ".additionalProperties"), true});
  }
  if (!list.empty() && additional != false && additional != true) {
    value_of(additional, place + ".additionalProperties");
  }
  return list;
}

// The members in order; optional ones may be left out.
ByteGrammar::Rule SchemaGrammar::members(const std::vector<Property>& properties) {
  // The remaining members: as the first of the object, and after another member.
  Rule first = json_.literal(""), later = first;
  for (auto one = properties.rbegin(); one != properties.rend(); ++one) {
    const Rule member = grammar_.new_rule();
    std::vector<ByteGrammar::Symbol> symbols = grammar_.literal(json_.key(one->name) + ":");
    symbols.insert(symbols.end(), {json_.blanks(), one->value, json_.blanks(), later});
    grammar_.add(member, symbols);
    const Rule new_first = grammar_.new_rule(), new_later = grammar_.new_rule();
    grammar_.add(new_first, {member});
    grammar_.add(new_later, {grammar_.byte(','), json_.blanks(), member});
    if (!one->required) {
      grammar_.add(new_first, {first});
      grammar_.add(new_later, {later});
    }
    first = new_first;
    later = new_later;
  }
  const Rule rule = grammar_.new_rule();
  grammar_.add(rule, {grammar_.byte('{'), json_.blanks(), first, grammar_.byte('}')});
  return rule;
}

ByteGrammar::Rule SchemaGrammar::array(const Json& schema, const std::string& place) {
  const int64_t least = length_at(schema, "minItems", place, kMaxItems).value_or(0);
  const auto most = length_at(schema, "maxItems", place, kMaxItems);
  if (most && *most < least) {
    throw SchemaError(place + ".maxItems", fmt::format("{} is below minItems, {}", *most, least));
  }
  std::vector<Rule> first;
  if (const auto list = schema.find("prefixItems"); list != schema.end()) {
    if (!list->is_array() || list->size() > kMaxMembers) {
      throw SchemaError(place + ".prefixItems",
                        fmt::format("allowed: a list of at most {} schemas", kMaxMembers));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      first.push_back(value_of((*list)[i], fmt::format("{}.prefixItems[{}]", place, i)));
    }
  }
  const auto items = schema.find("items");
  std::optional<Rule> item;
  if (items == schema.end()) item = json_.value();
  if (items != schema.end() && *items != false) item = value_of(*items, place + ".items");
  if (!item && least > std::ssize(first)) {
    throw SchemaError(place + ".minItems",
                      fmt::format("{}; other schemas allow at most {} items", least, first.size()));
  }
  return json_.array_of(item, least, most, first);
}

ByteGrammar::Rule SchemaGrammar::string(const Json& schema, const std::string& place) {
  if (json_.has_dialect()) {
    for (const char* const keyword : {"format", "pattern", "minLength", "maxLength"}) {
      if (schema.contains(keyword)) ignore(place + "." + keyword);
    }
    return json_.string();
  }
  const auto format = schema.find("format");
  const auto least = length_at(schema, "minLength", place, kMaxLength);
  const auto most = length_at(schema, "maxLength", place, kMaxLength);
  if (format != schema.end()) {
    const auto rule = format->is_string() ? json_.format(format->get<std::string>()) : std::nullopt;
    if (rule && (least || most)) {
      throw SchemaError(place + ".format",
                        shown(*format) + "; allowed without minLength and maxLength");
    }
    if (rule) return *rule;
    ignore(place + ".format");
  }
  if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
    if (!pattern->is_string() || least || most) {
      throw SchemaError(place + ".pattern",
                        shown(*pattern) + "; allowed: a string, without minLength and maxLength");
    }
    return pattern_rule(grammar_, pattern->get<std::string>(), place + ".pattern");
  }
  if (!least && !most) return json_.string();
  if (most && *most < least.value_or(0)) {
    throw SchemaError(place + ".maxLength",
                      fmt::format("{} is below minLength, {}", *most, *least));
  }
  return json_.string(least.value_or(0), most);
}

ByteGrammar::Rule SchemaGrammar::integer(const Json& schema, const std::string& place) {
  int64_t least = -JsonGrammar::kMaxInteger, most = JsonGrammar::kMaxInteger;
  const auto bound = [&](const char* keyword) -> std::optional<int64_t> {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return std::nullopt;
    const double value = found->is_number() ? found->get<double>() : 0.5;
    if (value != static_cast<double>(static_cast<int64_t>(std::clamp(
                     value, -1.0 * JsonGrammar::kMaxInteger, 1.0 * JsonGrammar::kMaxInteger)))) {
      throw SchemaError(place + "." + keyword,
                        fmt::format("{}; allowed: a whole number from -{} to {}", shown(*found),
                                    JsonGrammar::kMaxInteger, JsonGrammar::kMaxInteger));
    }
    return static_cast<int64_t>(value);
  };
  if (const auto value = bound("minimum")) least = std::max(least, *value);
  if (const auto value = bound("exclusiveMinimum")) least = std::max(least, *value + 1);
  if (const auto value = bound("maximum")) most = std::min(most, *value);
  if (const auto value = bound("exclusiveMaximum")) most = std::min(most, *value - 1);
  if (least > most) {
    throw SchemaError(place, fmt::format("no whole number lies from {} to {}", least, most));
  }
  return json_.integer(least, most);
}

ByteGrammar::Rule SchemaGrammar::number(const Json& schema, const std::string& place) {
  std::optional<NumberBound> least, most;
  const auto bound = [&](const char* keyword, bool exclusive) -> std::optional<NumberBound> {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return std::nullopt;
    if (!found->is_number()) {
      throw SchemaError(place + "." + keyword, shown(*found) + "; allowed: a number");
    }
    return NumberBound{.value = found->get<double>(), .exclusive = exclusive};
  };
  for (const bool exclusive : {false, true}) {
    const auto low = bound(exclusive ? "exclusiveMinimum" : "minimum", exclusive);
    const auto high = bound(exclusive ? "exclusiveMaximum" : "maximum", exclusive);
    if (low && (!least || low->value >= least->value)) least = low;
    if (high && (!most || high->value <= most->value)) most = high;
  }
  if (!least && !most) return json_.number();
  const auto rule = number_range(grammar_, least, most);
  if (!rule) {
    throw SchemaError(place, "no number lies between the bounds, or they have more than 15 digits");
  }
  return *rule;
}

const Json& SchemaGrammar::target_of(const Json& reference, const std::string& place) const {
  const std::string text = reference.is_string() ? reference.get<std::string>() : "";
  try {
    if (text == "#") return root_;
    if (text.starts_with("#/")) return root_.at(Json::json_pointer(text.substr(1)));
  } catch (const Json::exception&) {
    // The reference does not resolve.
  }
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
