// Converters from TOML values to a config's fields. Each take_ returns false and leaves the field
// unchanged for a value of the wrong kind.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace fasa {

// Whether it is an integer from `lowest` to `highest`.
bool is_integer_in(const nlohmann::json& value, int lowest, int highest);
// auto, interleave, or the number of a node.
std::optional<NumaPolicy> parse_numa(std::string_view text);
// Bytes, or a string such as "6GiB"; above 0.
bool take_bytes(const nlohmann::json& value, std::optional<uint64_t>& out);
// A number in [0, 1].
bool take_share(const nlohmann::json& value, double& out);
// An integer >= 1, a float in (0, 1], an array of these, or "auto" (none).
bool take_counts(const nlohmann::json& value, std::vector<TokenCount>& out);
// An integer >= 0, a float in [0, 1], or "auto" (none).
bool take_auto_count(const nlohmann::json& value, std::optional<TokenCount>& out);

}  // namespace fasa
