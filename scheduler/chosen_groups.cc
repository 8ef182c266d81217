#include "scheduler/chosen_groups.h"

#include <algorithm>

namespace fasa {

// The average load per sequence for which a set is chosen.
GroupLoad ChosenGroups::load_of(const StepBatch& step, int layer, int64_t pages, bool ahead) const {
  GroupLoad load;
  int64_t copied = 0;
  int64_t hot_rows = 0;
  int64_t over_link = 0;
  for (size_t i = 0; i < step.on_host.size(); ++i) {
    const SequenceDesc& sequence = step.on_host[i];
    if (sequence.mode != StepMode::kDecode) continue;
    const int32_t visible =
        sequence.end() - first_visible(sequence.start, settings_.layer(layer).window);
    if (settings_.selected_tokens(layer, visible) >= visible) continue;
    ++load.sequences;
    load.scored += visible;
    const bool local = sequence.access == RowAccess::kLocal;
    over_link += local ? 0 : 1;
    hot_rows += sequence.hot_rows;
    for (int page = 0; page < pages_of(sequence.end()); ++page) {
      copied += local || step.has_device_copy(i, page) ? 1 : 0;
    }
  }
  if (load.sequences == 0) return load;
  const double away =
      1 - static_cast<double>(copied) / static_cast<double>(std::max<int64_t>(1, pages));
  const auto mean = static_cast<int32_t>(load.scored / load.sequences);
  load.hot_rows = static_cast<int>(hot_rows / std::max<int64_t>(1, over_link));
  load.miss_share = std::max(0.0, away) * likely_miss_share(settings_, layer, mean, load.hot_rows);
  if (ahead) load.miss_share *= 1 - likely_coverage(settings_, layer, mean, load.hot_rows);
  return load;
}

const HeadGroups& ChosenGroups::of(const StepBatch& step, int layer, bool ahead) {
  int64_t pages = 0;
  for (const SequenceDesc& sequence : step.on_host) {
    if (sequence.mode == StepMode::kDecode) pages += pages_of(sequence.end());
  }
  Choice& chosen = layers_[static_cast<size_t>(layer)];
  if (chosen.pages == pages && chosen.sequences == step.count() && chosen.ahead == ahead) {
    return chosen.groups;
  }
  const GroupLoad load = load_of(step, layer, pages, ahead);
  chosen = {pages, step.count(), ahead, plan_groups(settings_, layer, load)};
  return chosen.groups;
}

}  // namespace fasa
