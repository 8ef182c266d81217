#include "offload/emulated/call_seconds.h"

#include <algorithm>
#include <variant>

#include "kernels/kernel_work.h"
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
  double operator()(const ResolveParams& call) const {
    return searched(call.step, call.step.together);
  }
  double operator()(const FetchParams& call) const { return (*this)(call.resolve); }
  double operator()(const ClaimSlotsParams& call) const { return searched(call.step, 1); }
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
  // Tokens that share hot slots are resolved one after the other.
  double searched(const StepParams& step, int times) const {
    double seconds = costs.launch;
    for (int i = 0; i < step.count; ++i) {
      const SequenceDesc& sequence = step.sequences[i];
      if (sequence.mode != StepMode::kDecode || sequence.access == RowAccess::kLocal) continue;
      const double once = costs.resolve_seconds(sequence.hot_rows) - costs.launch;
      seconds = std::max(seconds, costs.launch + times * once);
    }
    return seconds;
  }
};

// A token's bytes. Those of pages are read once for all tokens of its sequence in the call.
struct TokenBytes {
  uint64_t rows = 0;
  uint64_t scores = 0;
  uint64_t pages = 0;
};
// Sets what a byte takes: `again` of it for the pages of a token that is not the first.
template <typename BytesOf>
void share_pages(const StepParams& step, double again, const BytesOf& bytes_of,
                 CallSeconds* seconds) {
  double all = 0;
  double counted = 0;
  double read = 0;
  for (int i = 0; i < step.count; ++i) {
    if (step.sequences[i].mode != StepMode::kDecode) continue;
    const TokenBytes bytes = bytes_of(i);
    const auto alone = static_cast<double>(bytes.rows);
    const auto of_pages = static_cast<double>(bytes.scores + bytes.pages);
    const bool first = i % step.together == 0;
    all += alone + of_pages;
    counted += alone + of_pages * (first ? 1 : again);
    read += alone + (first ? of_pages : static_cast<double>(bytes.scores));
  }
  if (all == 0) return;
  seconds->byte *= counted / all;
  seconds->read = read / all;
}
void share_pages(const SelectParams& call, CallSeconds* seconds) {
  const CacheLayout& layout = call.step.layout;
  const auto bytes_of = [&](int i) {
    const auto pages = static_cast<uint64_t>(pages_of(call.step.sequences[i].end()));
    const bool by_page = call.low_bit_pages.capacity > 0;
    return TokenBytes{.scores = by_page ? pages * page_scores_bytes(layout, 1) : 0,
                      .pages = pages * scored_page_bytes(layout.slice)};
  };
  share_pages(call.step, KernelCosts::kScoredAgain, bytes_of, seconds);
}
// By the call's first head.
void share_pages(const AttendParams& call, CallSeconds* seconds) {
  const CacheLayout& layout = call.step.layout;
  if (call.low_bit_pages.capacity == 0) return;
  const auto bytes_of = [&](int i) {
    TokenBytes bytes;
    const int64_t head = int64_t{i} * layout.kv_heads + call.step.first_head();
    const int32_t rows = std::min(call.end, call.selected_sizes[head]) - call.begin;
    const auto pages = static_cast<uint64_t>(call.low_bit_pages.counts[head]);
    if (call.phase != AttendPhase::kReadyTiles) bytes.rows = rows_bytes(layout, std::max(rows, 0));
    if (call.phase == AttendPhase::kRemainingTiles) return bytes;
    bytes.scores = pages * page_scores_bytes(layout, 1);
    bytes.pages = pages * scored_page_bytes(layout.values);
    return bytes;
  };
  share_pages(call.step, KernelCosts::kAttendedAgain, bytes_of, seconds);
}

}  // namespace

CallSeconds call_seconds(const KernelCosts& costs, const KernelCall& call) {
  CallSeconds seconds = {.fixed = std::visit(FixedSeconds{costs}, call)};
  if (const auto* select = std::get_if<SelectParams>(&call)) {
    seconds.byte = costs.scored_byte;
    if (select->step.together > 1) share_pages(*select, &seconds);
  } else if (const auto* attend = std::get_if<AttendParams>(&call)) {
    seconds.byte = costs.attended_byte;
    if (attend->step.together > 1) share_pages(*attend, &seconds);
  }
  if (std::holds_alternative<PrefillParams>(call)) seconds.operation = costs.prompt_operation;
  return seconds;
}

}  // namespace fasa
