#include "offload/open_device.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/cpu/target.h"
#include "offload/cpu_device.h"
#include "offload/emulated_device.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

void require_rate(const char* option, double value, const char* unit) {
  if (std::isfinite(value) && value > 0) return;
  throw UsageError(fmt::format("{} = {}: must be more than 0 {}", option, value, unit));
}

void require_time(const char* option, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw UsageError(fmt::format("{} = {}: must be at least 0 seconds", option, value));
}

void validate(const DeviceOptions& options) {
  require_rate("link_bandwidth", options.link_bandwidth, "bytes per second");
  require_rate("memory_bandwidth", options.memory_bandwidth, "bytes per second");
  require_time("link_latency", options.link_latency);
  require_time("launch_seconds", options.launch_seconds);
}

}  // namespace

std::unique_ptr<Device> open_device(const DeviceOptions& options) {
  validate(options);
  cpu::active_target();  // a wrong FASA_TARGET is said here, not by the first kernel
  // This build has no CUDA device, so `auto` is the processor.
  if (options.name == "cpu" || options.name == "auto") return std::make_unique<CpuDevice>(options);
  if (options.name == "emulated") return std::make_unique<EmulatedDevice>(options);
  if (options.name.starts_with("cuda")) {
    throw UsageError(fmt::format(
        "device '{}': this build has no CUDA device; allowed: auto, cpu, emulated", options.name));
  }
  throw UsageError(
      fmt::format("device '{}' is unknown; allowed: auto, cpu, emulated", options.name));
}

}  // namespace fasa
