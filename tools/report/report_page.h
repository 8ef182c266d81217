// The pages of reports: one self-contained HTML file that draws a report's JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fasa {

// `kind` is the command: profile, eval or analyze (tools/report).
std::string report_page(std::string_view kind, nlohmann::json report);

}  // namespace fasa
