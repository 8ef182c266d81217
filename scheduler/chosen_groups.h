// The groups of KV heads in which each layer of a step is processed. They change only when a page
// fills, because a step's graph depends on them.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/head_groups.h"
#include "scheduler/step_batch.h"

namespace fasa {

class ChosenGroups {
 public:
  explicit ChosenGroups(const StepSettings& settings)
      : settings_(settings), layers_(static_cast<size_t>(settings.layer_count())) {}

  // `ahead`: runners-up are fetched for this layer.
  const HeadGroups& of(const StepBatch& step, int layer, bool ahead);

 private:
  struct Choice {
    int64_t pages = -1;  // pages seen by decode, all sequences
    int sequences = 0;
    bool ahead = false;
    HeadGroups groups;
  };
  GroupLoad load_of(const StepBatch& step, int layer, int64_t pages, bool ahead) const;

  const StepSettings& settings_;
  std::vector<Choice> layers_;
};

}  // namespace fasa
