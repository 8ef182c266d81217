// References within a JSON Schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fasa::text {

// What "#", "#/$defs/a" or, percent-encoded, "#/$defs/a%20b" leads to; null if it leads nowhere.
const nlohmann::ordered_json* reference_target(const nlohmann::ordered_json& root,
                                               const std::string& reference);

}  // namespace fasa::text
