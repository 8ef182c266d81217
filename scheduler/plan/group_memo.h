// The head groups of each layer's last loads, with runners-up and without: searching for them takes
// longer than all else of a plan. Gives what plan_groups gives.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/plan/head_groups.h"

namespace fasa {

class GroupMemo {
 public:
  explicit GroupMemo(const StepSettings& settings)
      : settings_(settings), layers_(2 * static_cast<size_t>(settings.layer_count())) {}

  const HeadGroups& of(int layer, const GroupLoad& load) {
    auto& known = layers_[2 * static_cast<size_t>(layer) + (load.runners_up > 0 ? 1 : 0)];
    if (!known || known->first != load) known = {load, plan_groups(settings_, layer, load)};
    return known->second;
  }

 private:
  const StepSettings& settings_;
  std::vector<std::optional<std::pair<GroupLoad, HeadGroups>>> layers_;
};

}  // namespace fasa
