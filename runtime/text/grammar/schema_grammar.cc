#include "runtime/text/grammar/schema_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/text/grammar/schema_error.h"
#include "runtime/text/grammar/schema_words.h"

namespace fasa::text {
namespace {

using Json = OrderedJson;

constexpr std::string_view kKinds[] = {"object", "array",   "string", "integer",
                                       "number", "boolean", "null"};

struct KindKeywords {
  std::string_view kind;
  std::vector<std::string_view> keywords;
};

const std::vector<KindKeywords>& keywords_of_kinds() {
  static const std::vector<KindKeywords> keywords = {
      {"object", {"properties", "required", "additionalProperties"}},
      {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems"}},
      {"string", {"minLength", "maxLength", "format", "pattern"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}}};
  return keywords;
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

// Older drafts give `items` as a list, and `additionalItems` for those behind it.
const char* prefix_keyword(const Json& schema) {
  const auto items = schema.find("items");
  return items != schema.end() && items->is_array() ? "items" : "prefixItems";
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
  const Json& root = resolved(root_, place_);
  if (!root.is_object()) return {};
  const Json& schema = root.contains("allOf") ? merged(root, place_) : root;
  check_keywords(schema, place_);
  return properties_of(schema, place_);
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
    ignore_beside(schema, "$ref", place);
    return reference(target_of(*found, place + ".$ref"), place + ".$ref");
  }
  if (const Json* const list = combination(schema, "allOf", place)) {
    const bool alone =
        list->size() == 1 &&
        std::none_of(schema.items().begin(), schema.items().end(), [](const auto& one) {
          return one.key() != "allOf" && !is_annotation(one.key());
        });
    return alone ? any_of(*list, place + ".allOf") : value_of(merged(schema, place), place);
  }
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    const Json* const list = combination(schema, keyword, place);
    if (list == nullptr) continue;
    ignore_beside(schema, keyword, place);
    if (keyword == std::string_view("oneOf")) require_disjoint(*list, place + ".oneOf");
    const Rule rule = any_of(*list, place + "." + keyword);
    return schema.value("nullable", Json()) == true ? json_.choice({rule, json_.literal("null")})
                                                    : rule;
  }
  std::vector<std::string> kinds = kinds_of(schema, place);
  check_keywords(schema, place);
  const auto values = schema.find("enum");
  const bool listed = values != schema.end() && !(values->is_array() && values->empty());
  if (listed || schema.contains("const")) return one_of_values(schema, place);
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
  const Json values = is_const ? Json::array({schema["const"]}) : schema["enum"];
  const std::string inner = place + (is_const ? ".const" : ".enum");
  if (!values.is_array() || values.empty()) {
    throw SchemaError(inner, shown(values) + "; allowed: a list of values");
  }
  for (const auto& [keyword, unused] : schema.items()) {
    const bool known = keyword == (is_const ? "const" : "enum") || keyword == "type";
    if (!known && !is_annotation(keyword)) ignore(place + "." + keyword);
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
      std::string name = kind.is_string() ? kind.get<std::string>() : "";
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (name == "any") return {std::begin(kKinds), std::end(kKinds)};
      if (!is_among(kKinds, name)) {
        throw SchemaError(
            place + ".type",
            shown(*found) + "; allowed: object, array, string, integer, number, boolean, null");
      }
      kinds.push_back(std::move(name));
    }
    if (kinds.empty())
      throw SchemaError(place + ".type", "is an empty list; give at least one type");
    const bool nullable = schema.value("nullable", Json()) == true;
    if (nullable && !is_among(kinds, "null")) kinds.emplace_back("null");
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
    const bool none = keyword == "enum" && member.value().empty();  // it would allow no value
    const bool read = keyword == "type" || keyword == "enum" || keyword == "const";
    if (is_annotation(keyword) || (read && !none)) continue;
    const auto& all = keywords_of_kinds();
    const bool known = std::any_of(all.begin(), all.end(), [&](const KindKeywords& one) {
      return is_among(one.keywords, keyword);
    });
    if (!known && !member.value().is_null() && member.value() != false) {
      ignore(place + "." + keyword);
    }
  }
}

// Recursive schemas and several kinds pass a place more than once.
void SchemaGrammar::ignore(const std::string& place) {
  if (!is_among(ignored_, place)) ignored_.push_back(place);
}

// A keyword that takes a schema's place leaves those beside it without effect.
void SchemaGrammar::ignore_beside(const Json& schema, const std::string& keyword,
                                  const std::string& place) {
  for (const auto& [other, unused] : schema.items()) {
    if (other != keyword && !is_annotation(other)) ignore(place + "." + other);
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
  if (additional == schema.end() || additional->is_null()) {
    return json_.object_of(json_.member_of(json_.value()));
  }
  if (*additional == false) return members({});
  const Rule value = value_of(*additional, place + ".additionalProperties");
  return json_.object_of(json_.member_of(value));
}

std::vector<SchemaGrammar::Property> SchemaGrammar::properties_of(const Json& schema,
                                                                  const std::string& place) {
  const auto at = [&](const char* keyword, const Json& otherwise) -> const Json& {
    const auto found = schema.find(keyword);
    return found == schema.end() || found->is_null() ? otherwise : *found;
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
  const std::string prefix = prefix_keyword(schema);
  if (const auto list = schema.find(prefix); list != schema.end()) {
    if (!list->is_array() || list->size() > kMaxMembers) {
      throw SchemaError(place + "." + prefix,
                        fmt::format("allowed: a list of at most {} schemas", kMaxMembers));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      first.push_back(value_of((*list)[i], fmt::format("{}.{}[{}]", place, prefix, i)));
    }
  }
  const std::string rest = prefix == "items" ? "additionalItems" : "items";
  const auto items = schema.find(rest);
  std::optional<Rule> item;
  if (items == schema.end()) item = json_.value();
  if (items != schema.end() && *items != false) item = value_of(*items, place + "." + rest);
  if (!item && least > std::ssize(first)) {
    throw SchemaError(place + ".minItems",
                      fmt::format("{}; other schemas allow at most {} items", least, first.size()));
  }
  return json_.array_of(item, least, most, first);
}

}  // namespace fasa::text
