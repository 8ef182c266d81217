// A plan as JSON, for `fasa plan --json` and for other languages.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/plan/planner.h"

namespace fasa {

nlohmann::json to_json(const PlanOptions& request, const Plan& plan);

// All known GPUs and geometries by name.
nlohmann::json catalog_json();

}  // namespace fasa
