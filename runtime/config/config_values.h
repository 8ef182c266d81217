// Converters from TOML values to a config's fields. Each returns false and leaves the field
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

bool take_string(const nlohmann::json& value, std::string& out);
bool take_int(const nlohmann::json& value, int& out);
bool take_int(const nlohmann::json& value, std::optional<int>& out);
// An integer >= 0, or "auto" (none).
bool take_auto_int(const nlohmann::json& value, std::optional<int>& out);
// Bytes, or a string such as "6GiB"; above 0.
bool take_bytes(const nlohmann::json& value, std::optional<uint64_t>& out);
// A string that `parse` (parse_rate, parse_seconds) accepts.
bool take_quantity(const nlohmann::json& value, std::optional<double> (*parse)(std::string_view),
                   double& out);
// A number in [0, 1].
bool take_share(const nlohmann::json& value, double& out);
// An integer >= 1, a float in (0, 1], an array of these, or "auto" (none).
bool take_counts(const nlohmann::json& value, std::vector<TokenCount>& out);
// An integer >= 0, a float in [0, 1], or "auto" (none).
bool take_auto_count(const nlohmann::json& value, std::optional<TokenCount>& out);
// An integer >= 0, or an array of these.
bool take_layers(const nlohmann::json& value, std::vector<int>& out);

}  // namespace fasa
