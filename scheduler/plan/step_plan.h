// How a step will be processed, layer by layer: decided once, before any of its work is enqueued.
// Pure functions of numbers; they need no device, so a plan can be priced without running it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "scheduler/plan/capacities.h"
#include "scheduler/plan/head_groups.h"
#include "scheduler/plan/prefetch_plan.h"
#include "scheduler/step_settings.h"

namespace fasa {

enum class DecodePath : uint8_t {
  kNone,              // no sequence decodes
  kAllInPlace,        // all visible tokens, read from their row blocks
  kAllStreamed,       // all visible tokens, copied over the link page by page
  kSelectedInPlace,   // sets of local rows
  kSelectedInGroups,  // sets whose misses all find hot slots, fetched by head groups
  kSelectedInWaves,   // sets whose misses also go through the fetch buffer
};
enum class PrefillPath : uint8_t {
  kNone,
  kInPlace,
  kStreamed,
  kFromLayerRows,  // a piece of a chunk whose rows are over the link
};

struct LayerPlan {
  DecodePath decode = DecodePath::kNone;
  PrefillPath prefill = PrefillPath::kNone;
  int32_t waves = 0;  // of kAllInPlace, kSelectedInPlace and kSelectedInWaves
  HeadGroups groups;  // of kSelectedInGroups

  bool operator==(const LayerPlan&) const = default;
};

// One sequence of a step.
struct MemberLoad {
  StepMode mode = StepMode::kDecode;
  int32_t end = 0;  // tokens, with the step's new ones; a decode adds one
  RowAccess access = RowAccess::kLocal;
  int32_t hot_rows = 0;
  int32_t copied_pages = 0;  // with rows over the link: pages that the device has a copy of
};

struct StepInput {
  std::span<const MemberLoad> members = {};
  // At least, of decoded rows: a round of attention may have fewer members than the step that the
  // scratch was sized for.
  RowAccess decoded = RowAccess::kLocal;
  int together = 1;            // tokens of a sequence whose sets share its hot slots
  DecodeCapacities held = {};  // by the scratch
  PrefetchPlan prefetch = {};
  bool host_takes_part = false;  // it measures the step, or loads rows during it
};

struct StepPlan {
  std::vector<LayerPlan> layers;
  PrefetchPlan prefetch;    // within the hot rows that no set occupies
  bool recordable = false;  // as a graph

  const LayerPlan& layer(int index) const { return layers[static_cast<size_t>(index)]; }
  // Adds all that the enqueued work depends on besides the scratch and the contents of device
  // memory, see StepKey.
  void append_key(std::vector<uint64_t>& key) const;
};

class GroupMemo;

// With a memo, the head groups are taken from it.
LayerPlan plan_layer(const StepSettings& settings, int layer, const StepInput& input,
                     GroupMemo* memo = nullptr);
StepPlan plan_step(const StepSettings& settings, StepInput input, GroupMemo* memo = nullptr);

}  // namespace fasa
