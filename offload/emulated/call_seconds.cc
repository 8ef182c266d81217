#include "offload/emulated/call_seconds.h"

#include <algorithm>
#include <variant>

#include "kernels/select_plan.h"

namespace fasa {
namespace {

// Blocks of heads and sequences run side by side: the one with the most to do ends last.
struct FixedSeconds {
  const KernelCosts& costs;

  double operator()(const SelectParams& call) const {
    double seconds = costs.select;
    for (int i = 0; i < call.step.count; ++i) {
      const SequenceDesc& sequence = call.step.sequences[i];
      if (sequence.mode != StepMode::kDecode) continue;
      const int32_t set = std::min(call.selected_capacity, sequence.end());
      const int32_t low_bit = std::min(call.low_bit.capacity, sequence.end() - set);
      const int32_t runners_up =
          std::min(call.runners_up.capacity, max_runners_up(sequence.hot_rows, set));
      seconds = std::max(seconds, costs.select_seconds(set, low_bit, runners_up));
    }
    return seconds;
  }
  double operator()(const ResolveParams& call) const { return searched(call.step); }
  double operator()(const FetchParams& call) const { return searched(call.resolve.step); }
  double operator()(const ClaimSlotsParams& call) const { return searched(call.step); }
  // Without partials, or without their fold, it is one kernel.
  double operator()(const AttendParams& call) const {
    const bool whole = call.partials != nullptr && call.phase != AttendPhase::kReadyTiles;
    return whole ? costs.attend : costs.launch;
  }
  template <typename Other>
  double operator()(const Other&) const {
    return costs.launch;
  }

 private:
  double searched(const StepParams& step) const {
    double seconds = costs.launch;
    for (int i = 0; i < step.count; ++i) {
      const SequenceDesc& sequence = step.sequences[i];
      if (sequence.mode != StepMode::kDecode || sequence.access == RowAccess::kLocal) continue;
      seconds = std::max(seconds, costs.resolve_seconds(sequence.hot_rows));
    }
    return seconds;
  }
};

}  // namespace

CallSeconds call_seconds(const KernelCosts& costs, const KernelCall& call) {
  CallSeconds seconds = {.fixed = std::visit(FixedSeconds{costs}, call)};
  if (std::holds_alternative<SelectParams>(call)) seconds.byte = costs.scored_byte;
  if (std::holds_alternative<AttendParams>(call)) seconds.byte = costs.attended_byte;
  if (std::holds_alternative<PrefillParams>(call)) seconds.operation = costs.prompt_operation;
  return seconds;
}

}  // namespace fasa
