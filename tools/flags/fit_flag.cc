#include "tools/flags/fit_flag.h"

#include <fmt/format.h>

#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/llm/compute/model_memory.h"
#include "runtime/plan/fit.h"

namespace fasa {
namespace {

// Memory for small tables, which estimate_memory does not count.
constexpr uint64_t kSmallThings = uint64_t{256} << 10;

// Host memory left besides the experts.
uint64_t host_left(const Device& device, uint64_t experts) {
  const uint64_t limit = device.memory(MemorySpace::kHost).limit_bytes;
  return limit == UINT64_MAX ? limit : limit - std::min(limit, experts);
}

}  // namespace

void FitFlag::add_to(CLI::App& command) {
  command.add_flag("--fit", given_,
                   "Make the model fit: an int8 lm_head, then as far as needed, for host memory "
                   "int8 rows and fewer tokens, for device memory fewer hot rows, int8 rows (if "
                   "they are there), no low-bit tokens, smaller slices, fewer tokens");
}

void FitFlag::apply(const Device& device, Config* config, Subject* subject) const {
  if (!given_) return;
  if (!config->weights.head) config->weights.head = WeightRounding::kInt8;
  const WeightOptions weights = config->weight_options();
  const RowDType rows = config->placement.row_dtype.value_or(subject->model.row_dtype());
  const uint64_t other =
      subject->other_bytes + mtp_row_bytes(subject->model, weights, rows, subject->tokens);
  const ModelMemory model =
      model_memory(subject->path, subject->model, subject->dtype, weights,
                   std::min<int64_t>(subject->model_tokens, subject->tokens),
                   device.traits().model_calls ? PanelOrder::kPlain : PanelOrder::kPacked);
  Fitted fitted = fit({.geometry = subject->model.geometry(),
                       .config = *config,
                       .row_dtype = rows,
                       .traits = device.traits(),
                       .model_bytes = model.total() + other + kSmallThings,
                       .device_memory = device.memory(MemorySpace::kDevice).limit_bytes,
                       .host_memory = host_left(device, model.weights.host),
                       .tokens = subject->tokens,
                       .min_tokens = subject->min_tokens,
                       .step_tokens = subject->step_tokens});
  for (const std::string& what : fitted.given_up) log_notice("--fit: " + what);
  log_notice(fmt::format("--fit: {} of device memory for weights ({}), activations and {} tokens",
                         format_bytes(fitted.device_bytes), format_bytes(model.weights.total),
                         fitted.tokens));
  *config = std::move(fitted.config);
  subject->tokens = fitted.tokens;
}

}  // namespace fasa
