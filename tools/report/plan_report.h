// A plan as tables, and as JSON (runtime/plan/plan_json.h).
#pragma once

#include <string>

#include "runtime/plan/plan_json.h"

namespace fasa {

struct PlanTableOptions {
  bool all = false;       // all options, not only the usual ones
  std::string file = {};  // that has the recommended settings; "": they are shown
};
std::string to_table(const PlanOptions& request, const Plan& plan, const PlanTableOptions& table);

// All known GPUs and geometries by name.
std::string catalog_table();

}  // namespace fasa
