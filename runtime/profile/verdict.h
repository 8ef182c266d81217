// A profile in three sentences.
#pragma once

#include <string>

#include "offload/kernel_costs.h"
#include "runtime/profile/profile.h"

namespace fasa {

// What it costs that rows are on the host, in seconds over all steps.
struct HostRowCost {
  double waits = 0;   // for rows
  double groups = 0;  // calls of head groups beyond a layer's first, and of codes that come first
  double total() const { return waits + groups; }
};
HostRowCost host_row_cost(const Profile& profile, const KernelCosts& costs);

// "22.678 ms a token: scoring 45 %, weights 28 %, ... Rows on the host cost 3.1 ms of it (13.7 %):
// 1.6 ms of waiting and 1.5 ms of launches to hide the rest." Times are a step's.
std::string verdict(const Profile& profile, const KernelCosts& costs);

}  // namespace fasa
