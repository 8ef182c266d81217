// The head groups of each layer's last load: searching for them takes longer than all else of a
// plan. Gives what plan_groups gives.
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
      : settings_(settings), layers_(static_cast<size_t>(settings.layer_count())) {}

  const HeadGroups& of(int layer, const GroupLoad& load) {
    auto& known = layers_[static_cast<size_t>(layer)];
    if (!known || known->first != load) known = {load, plan_groups(settings_, layer, load)};
    return known->second;
  }
  // Whether the first load of a layer takes less time than the second.
  bool pays(int layer, const GroupLoad& load, const GroupLoad& other) {
    if (!compared_ || compared_->layer != layer || compared_->load != load ||
        compared_->other != other) {
      compared_ = {layer, load, other,
                   layer_seconds(settings_, layer, load) < layer_seconds(settings_, layer, other)};
    }
    return compared_->pays;
  }

 private:
  struct Compared {
    int layer;
    GroupLoad load;
    GroupLoad other;
    bool pays;
  };

  const StepSettings& settings_;
  std::vector<std::optional<std::pair<GroupLoad, HeadGroups>>> layers_;
  std::optional<Compared> compared_;
};

}  // namespace fasa
