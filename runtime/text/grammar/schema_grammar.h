// Converts a JSON Schema to a grammar. Every text of the grammar is JSON that the schema allows.
#pragma once

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/grammar/json_grammar.h"
#include "runtime/text/grammar/number_range.h"

namespace fasa::text {

using OrderedJson = nlohmann::ordered_json;

// Grammar of a subset of what the schema allows: members in the order of `properties` and no
// others, numbers of at most 15 digits. The supported keywords are type, enum, const, properties,
// required, additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength,
// format (date, time, date-time, uuid), pattern (pattern_grammar.h), minimum, maximum and their
// exclusive forms, nullable, anyOf, oneOf (disjoint alternatives), allOf, $ref within the schema,
// including recursive ones. All others, and those that cannot be combined (pattern beside lengths,
// anyOf beside properties), are not enforced: ignored() names them, unless they are annotations.
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
  struct Bounds {
    std::optional<NumberBound> least, most;
  };

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
  Bounds bounds_of(const Json& schema, const std::string& place);
  Rule integer(const Json& schema, const std::string& place);
  Rule number(const Json& schema, const std::string& place);
  std::vector<std::string> kinds_of(const Json& schema, const std::string& place) const;
  void check_keywords(const Json& schema, const std::string& place);
  void ignore(const std::string& place);
  void ignore_beside(const Json& schema, const std::string& keyword, const std::string& place);
  const Json* combination(const Json& schema, const char* keyword, const std::string& place);
  const Json& merged(const Json& schema, const std::string& place);
  void require_disjoint(const Json& list, const std::string& place) const;
  const Json& resolved(const Json& schema, const std::string& place) const;
  const Json& target_of(const Json& reference, const std::string& place) const;

  ByteGrammar& grammar_;
  JsonGrammar json_;
  const Json& root_;
  const std::string place_;
  std::map<const Json*, Rule> referred_;
  std::vector<std::string> ignored_;
  std::deque<Json> merged_;  // schemas made of several; rules refer to their addresses
  int depth_ = 0;            // nesting depth while reading
};

}  // namespace fasa::text
