#include "runtime/trace/selection_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/io/shipped_files.h"

namespace fasa {
namespace {

void check(bool ok, std::string_view what, int64_t given, const std::string& allowed) {
  if (!ok) {
    throw UsageError(fmt::format("selection trace: {} = {}; allowed: {}", what, given, allowed));
  }
}

}  // namespace

SelectionTrace::SelectionTrace(TraceShape shape) : shape_(std::move(shape)) {
  check(shape_.layers >= 1, "layers", shape_.layers, "1 or more");
  check(shape_.kv_heads >= 1, "kv_heads", shape_.kv_heads, "1 or more");
  check(shape_.sinks >= 0, "sinks", shape_.sinks, "0 or more");
  check(shape_.recent >= 1, "recent", shape_.recent, "1 or more");
  check(shape_.budget > shape_.sinks + shape_.recent, "budget", shape_.budget,
        fmt::format("more than sinks + recent ({})", shape_.sinks + shape_.recent));
  check(shape_.bands.size() <= kMaxBands, "bands", static_cast<int64_t>(shape_.bands.size()),
        fmt::format("at most {}", kMaxBands));
  int last = 0;
  for (const int end : shape_.bands) {
    check(end > last, "end of a band", end, fmt::format("more than {}", last));
    last = end;
  }
  if (!shape_.bands.empty()) {
    check(std::ranges::find(shape_.bands, shape_.set_ranked()) != shape_.bands.end(),
          "budget - sinks - recent", shape_.set_ranked(), "the end of a band");
  }
}

void SelectionTrace::check_ranking(std::span<const int32_t> ranking, std::span<const int32_t> set,
                                   int32_t context) const {
  const int all = shape_.bands.empty() ? 0 : shape_.bands.back();
  check(static_cast<int64_t>(ranking.size()) <= all, "size of a ranking",
        static_cast<int64_t>(ranking.size()), fmt::format("at most {}", all));
  size_t begin = 0;
  for (const int end_of_band : shape_.bands) {
    const size_t end = std::min(ranking.size(), static_cast<size_t>(end_of_band));
    const bool in_set = end_of_band <= shape_.set_ranked();
    int32_t before = -1;
    for (; begin < end; ++begin) {
      const int32_t position = ranking[begin];
      check(position > before && position < context, "position in a band", position,
            fmt::format("{} to {}, ascending", before + 1, context - 1));
      check(std::ranges::binary_search(set, position) == in_set, "position in a band", position,
            in_set ? "those of the true set" : "those outside the true set");
      before = position;
    }
  }
  std::vector<int32_t> sorted(ranking.begin(), ranking.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  check(twice == sorted.end(), "position in two bands", twice == sorted.end() ? 0 : *twice,
        "each position once");
}

void SelectionTrace::add_step(int32_t context, std::span<const std::vector<int32_t>> sets) {
  const int32_t last = contexts_.empty() ? 0 : contexts_.back();
  check(context > last, "step context", context, fmt::format("more than {}", last));
  check(sets.size() == slots(), "number of sets in a step", static_cast<int64_t>(sets.size()),
        fmt::format("{}", slots()));
  const size_t positions = positions_.size();
  const size_t ends = ends_.size();
  try {
    for (size_t slot = 0; slot < sets.size(); ++slot) {
      const std::vector<int32_t>& set = sets[slot];
      if (slot % 2 == 1) {
        check_ranking(set, sets[slot - 1], context);
        positions_.insert(positions_.end(), set.begin(), set.end());
        ends_.push_back(positions_.size());
        continue;
      }
      check(!set.empty() && static_cast<int64_t>(set.size()) <= shape_.budget, "set size",
            static_cast<int64_t>(set.size()), fmt::format("1 to {}", shape_.budget));
      int32_t before = -1;
      for (const int32_t position : set) {
        check(position > before && position < context, "position in a set", position,
              fmt::format("{} to {}, ascending", before + 1, context - 1));
        before = position;
      }
      positions_.insert(positions_.end(), set.begin(), set.end());
      ends_.push_back(positions_.size());
    }
  } catch (...) {
    positions_.resize(positions);
    ends_.resize(ends);
    throw;
  }
  contexts_.push_back(context);
}

std::string default_selection_trace() {
  constexpr const char* kName = "traces/smollm2-8k.fasatrace";
  if (const auto file = shipped_file(kName)) return file->string();
  throw InputError(
      fmt::format("the trace models/{} was not found beside the program or in a folder "
                  "above it; record one with fasa trace and give its path",
                  kName));
}

}  // namespace fasa
