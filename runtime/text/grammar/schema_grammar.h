// Converts a JSON Schema to a grammar. Every text of the grammar is JSON that the schema allows.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/grammar/json_grammar.h"

namespace fasa::text {

using OrderedJson = nlohmann::ordered_json;

// Grammar of a subset of what the schema allows: members in the order of `properties` and no
// others, numbers of at most 15 digits. Schemas that the subset cannot express are an error, not
// approximated. Besides annotations, the supported keywords are type, enum, const, properties,
// required, additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength,
// format (date, time, date-time, uuid), pattern (pattern_grammar.h), minimum, maximum and their
// exclusive forms, anyOf, oneOf (disjoint alternatives), allOf (a single schema), $ref within the
// schema, including recursive ones. Other formats, uniqueItems and multipleOf are not enforced:
// ignored() names them.
class SchemaGrammar {
 public:
  static constexpr int64_t kMaxLength = 1'000'000;  // of bounded strings
  static constexpr int64_t kMaxItems = 2048;        // of bounded arrays
  static constexpr int kMaxSchemas = 128;           // nesting depth
  static constexpr size_t kMaxMembers = 1024;
  static constexpr size_t kMaxAlternatives = 64;  // of oneOf

  struct Property {
    std::string name;
    ByteGrammar::Rule value;
    bool required;
  };

  // `schema` must outlive it; `place`: its name in errors. In a dialect, the length, pattern and
  // format of texts are not enforced.
  SchemaGrammar(ByteGrammar& grammar, const OrderedJson& schema, std::string place,
                JsonDialect dialect = {});

  // Throws SchemaError.
  ByteGrammar::Rule build();
  // The members of the schema's object, for formats that spell them differently; none: it has any.
  std::vector<Property> build_members();
  // Keywords that the grammar does not enforce, by their places.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  using Rule = ByteGrammar::Rule;
  using Json = OrderedJson;

  Rule value_of(const Json& schema, const std::string& place);
  Rule read(const Json& schema, const std::string& place);
  Rule reference(const Json& target, const std::string& place);
  Rule any_of(const Json& list, const std::string& place);
  Rule one_of_values(const Json& schema, const std::string& place);
  Rule kind_of(const std::string& kind, const Json& schema, const std::string& place);
  Rule object(const Json& schema, const std::string& place);
  std::vector<Property> properties_of(const Json& schema, const std::string& place);
  Rule members(const std::vector<Property>& properties);
  Rule array(const Json& schema, const std::string& place);
  Rule string(const Json& schema, const std::string& place);
  Rule integer(const Json& schema, const std::string& place);
  Rule number(const Json& schema, const std::string& place);
  std::vector<std::string> kinds_of(const Json& schema, const std::string& place) const;
  void check_keywords(const Json& schema, const std::string& place);
  void ignore(const std::string& place);
  void check_alone(const Json& schema, const std::string& keyword, const std::string& place) const;
  void require_disjoint(const Json& list, const std::string& place) const;
  const Json& resolved(const Json& schema, const std::string& place) const;
  const Json& target_of(const Json& reference, const std::string& place) const;

  ByteGrammar& grammar_;
  JsonGrammar json_;
  const Json& root_;
  const std::string place_;
  std::map<const Json*, Rule> referred_;
  std::vector<std::string> ignored_;
  int depth_ = 0;  // nesting depth while reading
};

}  // namespace fasa::text
