#include "tools/commands/emulated_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/plan/plan_machine.h"

namespace fasa {
namespace {

constexpr size_t kWindow = 8;  // steps of a mean hit rate

uint64_t beside_weights(const EmulatedDecode& decode, uint64_t usable) {
  if (decode.weight_bits == 0) return usable;
  const uint64_t weights = weight_bytes(decode.shape.device_parameters(), decode.weight_bits) +
                           activation_bytes(decode.shape, decode.prefill_chunk);
  if (weights >= usable) {
    throw BudgetError(
        "device_memory", weights, 0, usable,
        fmt::format("the weights of {} with {} bits", decode.shape.name, decode.weight_bits));
  }
  return usable - weights;
}

}  // namespace

SyntheticOptions emulated_options(const EmulatedDecode& decode, Config config) {
  config.device.name = "emulated";
  const DeviceOptions device = config.device_options();
  if (config.placement.rows != RowPlacement::kDevice) {
    const uint64_t usable = make_plan_machine(config, {}).usable_device_bytes();
    if (usable != UINT64_MAX) config.memory.device_memory = beside_weights(decode, usable);
  }
  SyntheticOptions options;
  options.geometry = decode.shape.geometry;
  options.tokens = decode.tokens;
  options.sequences = decode.sequences;
  options.step_tokens = decode.step_tokens;
  options.max_steps = decode.max_steps;
  options.row_dtype = config.placement.row_dtype.value_or(DType::kBF16);
  options.memory_bandwidth = device.memory_bandwidth;
  options.kernels = device.kernels;
  options.weights = weight_load(decode.shape, decode.weight_bits);
  options.seed = decode.seed;
  options.config = std::move(config);
  return options;
}

WarmUp warm_up(ProfiledDecode& decode, int least, int most, const std::function<void()>& on_step) {
  WarmUp done;
  std::vector<double> rates;
  const auto mean = [&](size_t end) {
    const auto last = rates.begin() + static_cast<ptrdiff_t>(end);
    return std::accumulate(last - kWindow, last, 0.0) / kWindow;
  };
  while (done.steps < least || (done.steps < most && done.rises())) {
    rates.push_back(decode.warm_up());
    ++done.steps;
    on_step();
    if (rates.size() < 2 * kWindow) continue;
    done.after = mean(rates.size());
    done.before = mean(rates.size() - kWindow);
  }
  return done;
}

}  // namespace fasa
