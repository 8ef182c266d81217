// A plan as JSON and as tables for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/plan/planner.h"

namespace fasa {

nlohmann::json to_json(const PlanRequest& request, const Plan& plan);
std::string to_table(const PlanRequest& request, const Plan& plan);  // lines of at most 100 columns

// Every GPU and geometry by name.
nlohmann::json catalog_json();
std::string catalog_table();

}  // namespace fasa
