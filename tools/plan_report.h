// A plan as tables, and as JSON (runtime/plan/plan_json.h).
#pragma once

#include <string>

#include "runtime/plan/plan_json.h"

namespace fasa {

std::string to_table(const PlanOptions& request, const Plan& plan);  // lines of at most 100 columns

// All known GPUs and geometries by name.
std::string catalog_table();

}  // namespace fasa
