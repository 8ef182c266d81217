// Words of JSON Schema, and how schemas appear in errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/grammar/schema_grammar.h"

namespace fasa::text {

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Whether a keyword constrains nothing.
bool is_annotation(const std::string& keyword);
// The beginning of a schema's text.
std::string shown(const OrderedJson& json);
// A limit on a length: an integer >= 0. Throws SchemaError.
std::optional<int64_t> length_at(const OrderedJson& schema, const char* keyword,
                                 const std::string& place, int64_t most);

}  // namespace fasa::text
