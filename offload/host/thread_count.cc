#include "offload/host/thread_count.h"

#include <fmt/format.h>
#include <tbb/info.h>

#include <algorithm>
#include <cmath>

#include "offload/host/control_group.h"
#include "runtime/base/error.h"

namespace fasa {

ThreadCount::ThreadCount(int threads) : value_(threads) {
  if (threads < 0 || threads > kMax) {
    throw UsageError(fmt::format("threads = {}: allowed: 0 (all cores) to {}", threads, kMax));
  }
  const int cores = tbb::info::default_concurrency();
  const double quota = ControlGroup::own().cpus.value_or(cores);
  if (threads == 0) value_ = std::clamp(static_cast<int>(std::ceil(quota)), 1, cores);
  if (value_ > cores) {
    more_than_cores_.emplace(tbb::global_control::max_allowed_parallelism,
                             static_cast<size_t>(value_));
  }
}

}  // namespace fasa
