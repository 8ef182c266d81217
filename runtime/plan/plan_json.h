// A plan as JSON: what `fasa plan --json` prints, and what other languages get.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/plan/planner.h"

namespace fasa {

nlohmann::json to_json(const PlanOptions& request, const Plan& plan);

// Every GPU and geometry by name.
nlohmann::json catalog_json();

}  // namespace fasa
