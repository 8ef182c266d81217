#include "scheduler/plan/step_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "kernels/select_plan.h"
#include "scheduler/plan/group_memo.h"

namespace fasa {
namespace {

int32_t quotient_up(int32_t value, int32_t by) {
  return by > 0 ? value / by + (value % by > 0 ? 1 : 0) : 0;
}

// What the sequences of one mode have in common in a layer.
struct Members {
  bool any = false;
  bool attend_to_all = true;
  RowAccess access = RowAccess::kLocal;  // over the link if the rows of any are
  int32_t longest = 0;                   // visible tokens
};

Members members_of(const StepSettings& settings, int layer, const StepInput& input, StepMode mode) {
  Members all;
  const RowAccess least = mode == StepMode::kDecode ? input.decoded : RowAccess::kLocal;
  for (const MemberLoad& member : input.members) {
    if (member.mode != mode) continue;
    const int32_t visible = settings.visible_tokens(layer, member.end);
    const RowAccess access = std::max(member.access, least);
    all.any = true;
    all.attend_to_all &= settings.attends_to_all(layer, visible, access);
    if (!settings.layer(layer).in_window_rows) all.access = std::max(all.access, access);
    all.longest = std::max(all.longest, visible);
  }
  return all;
}

DecodePath decode_path(const Members& all, const DecodeCapacities& held) {
  const bool local = all.access == RowAccess::kLocal;
  if (!all.any) return DecodePath::kNone;
  if (all.attend_to_all) return local ? DecodePath::kAllInPlace : DecodePath::kAllStreamed;
  if (local) return DecodePath::kSelectedInPlace;
  return held.needs_fetch_buffer() ? DecodePath::kSelectedInWaves : DecodePath::kSelectedInGroups;
}

int32_t waves_of(const StepSettings& settings, DecodePath path, const Members& all,
                 const DecodeCapacities& held) {
  if (path == DecodePath::kAllInPlace) {
    return quotient_up(all.longest, held.dense_wave(settings));
  }
  const bool in_waves =
      path == DecodePath::kSelectedInPlace || path == DecodePath::kSelectedInWaves;
  return in_waves ? quotient_up(held.selected_capacity, held.wave()) : 0;
}

// The average load per sequence for which a set is chosen. Lengths count up to the first token of
// their last page: as a step's graph depends on the groups, they change only when a page fills.
// `ahead`: runners-up are fetched for the layer.
GroupLoad group_load(const StepSettings& settings, int layer, std::span<const MemberLoad> members,
                     bool ahead) {
  GroupLoad load;
  int64_t pages = 0;
  int64_t copied = 0;
  int64_t hot_rows = 0;
  int64_t over_link = 0;
  for (const MemberLoad& member : members) {
    if (member.mode != StepMode::kDecode) continue;
    const int held = pages_of(member.end);
    const int32_t visible = settings.visible_tokens(layer, (held - 1) * kPageTokens + 1);
    const bool local = member.access == RowAccess::kLocal;
    pages += held;
    if (settings.selected_tokens(layer, visible) >= visible) continue;
    ++load.sequences;
    load.scored += visible;
    over_link += local ? 0 : 1;
    hot_rows += member.hot_rows;
    copied += local ? held : member.copied_pages;
  }
  if (load.sequences == 0) return load;
  const double away =
      1 - static_cast<double>(copied) / static_cast<double>(std::max<int64_t>(1, pages));
  const auto mean = static_cast<int32_t>(load.scored / load.sequences);
  load.hot_rows = static_cast<int>(hot_rows / std::max<int64_t>(1, over_link));
  load.miss_share = std::max(0.0, away) * likely_miss_share(settings, layer, mean, load.hot_rows);
  if (!ahead) return load;
  load.miss_share *= 1 - likely_coverage(settings, layer, mean, load.hot_rows);
  load.runners_up = max_runners_up(load.hot_rows, settings.selected_tokens(layer, mean));
  return load;
}

// True if the hot rows of any sequence are worth runners-up in any layer: else no list has any.
bool lists_runners_up(const StepSettings& settings, std::span<const MemberLoad> members) {
  for (const MemberLoad& member : members) {
    if (member.mode != StepMode::kDecode || member.access == RowAccess::kLocal) continue;
    for (int layer = 0; layer < settings.layer_count(); ++layer) {
      const int32_t visible = settings.visible_tokens(layer, member.end);
      const bool any =
          max_runners_up(member.hot_rows, settings.selected_tokens(layer, visible)) > 0;
      if (any && !settings.layer(layer).dense) return true;
    }
  }
  return false;
}

// The load's rows as the last steps counted them; as expected where they were not counted.
GroupLoad counted(const StepSettings& settings, int layer, const PrefetchPlan& plan,
                  GroupLoad load) {
  const auto visible = static_cast<int32_t>(load.scored / std::max(1, load.sequences));
  const auto either = [](double count, double expected) { return count < 0 ? expected : count; };
  const double missing =
      either(plan.counts.missing, likely_miss_share(settings, layer, visible, load.hot_rows));
  load.miss_share = missing;
  if (load.runners_up == 0) return load;
  const double most =
      static_cast<double>(plan.rows) / settings.selected_tokens(layer, std::max(1, visible));
  const double expected = missing * likely_ahead(settings, layer, visible, load.hot_rows);
  load.miss_share *=
      1 - either(plan.counts.coverage, likely_coverage(settings, layer, visible, load.hot_rows));
  load.ahead = std::min(either(plan.counts.ahead, expected), most);
  load.period = plan.layer_seconds;
  return load;
}

// Seconds of a layer whose misses vary as an exponential distribution does, by its quantiles: what
// a mean number of misses hides, a larger one does not.
double expected_seconds(const StepSettings& settings, int layer, const GroupLoad& load,
                        const HeadGroups& groups) {
  constexpr std::array kQuantiles{0.105, 0.357, 0.693, 1.204, 2.641};  // their mean is 1
  double sum = 0;
  for (const double quantile : kQuantiles) {
    GroupLoad drawn = load;
    drawn.miss_share *= quantile;
    sum += layer_seconds(settings, layer, drawn, groups);
  }
  return sum / kQuantiles.size();
}

// Whether runners-up make the first layer that has any faster: a select ranks them, the link moves
// more, and misses are fewer.
bool runners_up_pay(const StepSettings& settings, const StepInput& input, GroupMemo& memo) {
  const PrefetchPlan& plan = input.prefetch;
  if (plan.trial) return true;
  for (int layer = 1; layer < settings.layer_count(); ++layer) {
    if (settings.layer(layer).dense) continue;
    const GroupLoad ahead = group_load(settings, layer, input.members, true);
    if (ahead.runners_up == 0) continue;
    const auto seconds = [&](const GroupLoad& load) {
      return expected_seconds(settings, layer, counted(settings, layer, plan, load),
                              memo.of(layer, load));
    };
    return seconds(ahead) < seconds(group_load(settings, layer, input.members, false));
  }
  return false;
}

// Leaves a hot slot for every miss of the true set.
PrefetchPlan within(const StepSettings& settings, const StepInput& input, GroupMemo& memo) {
  if (input.prefetch.runners_up) {
    const bool fixed = settings.prefetch.depth.has_value();
    if (!lists_runners_up(settings, input.members)) return {};
    if (!fixed && !runners_up_pay(settings, input, memo)) return {};
  }
  PrefetchPlan plan = input.prefetch;
  const int left = input.held.hot_rows - input.together * input.held.selected_capacity;
  plan.rows = std::min({plan.rows, input.held.prediction_rows(), std::max(0, left)});
  if (!settings.prefetches(settings.max_hot_rows)) return {};
  return plan.on() ? plan : PrefetchPlan{.runners_up = plan.runners_up};
}

}  // namespace

LayerPlan plan_layer(const StepSettings& settings, int layer, const StepInput& input,
                     GroupMemo* memo) {
  const Members decoded = members_of(settings, layer, input, StepMode::kDecode);
  const Members prompts = members_of(settings, layer, input, StepMode::kPrefill);
  LayerPlan plan;
  plan.decode = decode_path(decoded, input.held);
  plan.waves = waves_of(settings, plan.decode, decoded, input.held);
  if (prompts.any) {
    plan.prefill =
        prompts.access == RowAccess::kLocal ? PrefillPath::kInPlace : PrefillPath::kStreamed;
  }
  if (plan.decode == DecodePath::kSelectedInGroups) {
    const bool ahead = layer > 0 && input.prefetch.runners_up && input.prefetch.on();
    const GroupLoad load = group_load(settings, layer, input.members, ahead);
    plan.groups = memo != nullptr ? memo->of(layer, load) : plan_groups(settings, layer, load);
  }
  return plan;
}

// Not recordable: steps in which the host takes part, and pages streamed by copies of their own.
StepPlan plan_step(const StepSettings& settings, StepInput input, GroupMemo* memo) {
  StepPlan plan;
  std::optional<GroupMemo> own;
  if (memo == nullptr) memo = &own.emplace(settings);
  input.prefetch = plan.prefetch = within(settings, input, *memo);
  plan.recordable = !input.host_takes_part && settings.selection == nullptr;
  plan.layers.reserve(static_cast<size_t>(settings.layer_count()));
  for (int layer = 0; layer < settings.layer_count(); ++layer) {
    const LayerPlan& added = plan.layers.emplace_back(plan_layer(settings, layer, input, memo));
    plan.recordable &=
        added.prefill == PrefillPath::kNone && added.decode != DecodePath::kAllStreamed;
  }
  return plan;
}

void StepPlan::append_key(std::vector<uint64_t>& key) const {
  const auto add = [&](auto word) { key.push_back(static_cast<uint64_t>(word)); };
  for (const LayerPlan& layer : layers) {
    add(layer.decode);
    add(layer.prefill);
    add(layer.waves);
    add(layer.groups.count());
    add(layer.groups.codes_first());
    for (int g = 0; g < layer.groups.count(); ++g) add(layer.groups[g].end);
  }
  add(prefetch.depth);
  add(prefetch.rows);
  add(prefetch.runners_up);
}

}  // namespace fasa
