// Strings and numbers of a schema.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/text/grammar/number_range.h"
#include "runtime/text/grammar/pattern_grammar.h"
#include "runtime/text/grammar/schema_error.h"
#include "runtime/text/grammar/schema_words.h"

namespace fasa::text {

ByteGrammar::Rule SchemaGrammar::string(const Json& schema, const std::string& place) {
  if (json_.has_dialect()) {
    for (const char* const keyword : {"format", "pattern", "minLength", "maxLength"}) {
      if (schema.contains(keyword)) ignore(place + "." + keyword);
    }
    return json_.string();
  }
  const auto format = schema.find("format");
  const auto pattern = schema.find("pattern");
  const auto least = length_at(schema, "minLength", place, kMaxLength);
  const auto most = length_at(schema, "maxLength", place, kMaxLength);
  const auto ignore_lengths = [&] {
    if (least) ignore(place + ".minLength");
    if (most) ignore(place + ".maxLength");
  };
  if (format != schema.end() && format->is_string()) {
    if (const auto rule = json_.format(format->get<std::string>())) {
      ignore_lengths();
      if (pattern != schema.end()) ignore(place + ".pattern");
      return *rule;
    }
    ignore(place + ".format");
  }
  if (pattern != schema.end()) {
    if (!pattern->is_string()) {
      throw SchemaError(place + ".pattern", shown(*pattern) + "; allowed: a string");
    }
    try {
      const Rule rule = pattern_rule(grammar_, pattern->get<std::string>(), place + ".pattern");
      ignore_lengths();
      return rule;
    } catch (const SchemaError&) {
      ignore(place + ".pattern");
    }
  }
  if (!least && !most) return json_.string();
  if (most && *most < least.value_or(0)) {
    throw SchemaError(place + ".maxLength",
                      fmt::format("{} is below minLength, {}", *most, *least));
  }
  return json_.string(least.value_or(0), most);
}

// The bounds of a number; those beyond what the grammar writes are no bounds. In older drafts the
// exclusive forms are true or false.
SchemaGrammar::Bounds SchemaGrammar::bounds_of(const Json& schema, const std::string& place) {
  constexpr auto kMost = static_cast<double>(JsonGrammar::kMaxInteger);
  Bounds bounds;
  const auto bound = [&](const char* keyword, const char* exclusive) -> std::optional<NumberBound> {
    const auto found = schema.find(keyword);
    if (found == schema.end() || found->is_null() || found->is_boolean()) return std::nullopt;
    if (!found->is_number()) {
      throw SchemaError(place + "." + keyword, shown(*found) + "; allowed: a number");
    }
    const bool outside = exclusive == nullptr || schema.value(exclusive, Json()) == true;
    return NumberBound{.value = found->get<double>(), .exclusive = outside};
  };
  for (const bool exclusive : {false, true}) {
    const auto low =
        exclusive ? bound("exclusiveMinimum", nullptr) : bound("minimum", "exclusiveMinimum");
    const auto high =
        exclusive ? bound("exclusiveMaximum", nullptr) : bound("maximum", "exclusiveMaximum");
    const bool lower = low && low->value >= -kMost, higher = high && high->value <= kMost;
    if (lower && (!bounds.least || low->value >= bounds.least->value)) bounds.least = low;
    if (higher && (!bounds.most || high->value <= bounds.most->value)) bounds.most = high;
  }
  return bounds;
}

ByteGrammar::Rule SchemaGrammar::integer(const Json& schema, const std::string& place) {
  constexpr auto kMost = static_cast<double>(JsonGrammar::kMaxInteger);
  const Bounds bounds = bounds_of(schema, place);
  double low = -kMost, high = kMost;
  if (bounds.least) {
    const double value = bounds.least->value;
    low = std::max(low, bounds.least->exclusive ? std::floor(value) + 1 : std::ceil(value));
  }
  if (bounds.most) {
    const double value = bounds.most->value;
    high = std::min(high, bounds.most->exclusive ? std::ceil(value) - 1 : std::floor(value));
  }
  if (low > high) {
    throw SchemaError(place, fmt::format("no whole number lies from {} to {}", low, high));
  }
  return json_.integer(static_cast<int64_t>(low), static_cast<int64_t>(high));
}

ByteGrammar::Rule SchemaGrammar::number(const Json& schema, const std::string& place) {
  const Bounds bounds = bounds_of(schema, place);
  if (!bounds.least && !bounds.most) return json_.number();
  const auto rule = number_range(grammar_, bounds.least, bounds.most);
  if (!rule) {
    throw SchemaError(place, "no number lies between the bounds, or they have more than 15 digits");
  }
  return *rule;
}

}  // namespace fasa::text
