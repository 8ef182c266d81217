#include "offload/open_device.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/target.h"
#include "offload/cpu/cpu_device.h"
#include "offload/cuda/cuda_choice.h"
#include "offload/cuda/cuda_device.h"
#include "offload/emulated/emulated_device.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {
namespace {

void require_rate(const char* option, double value, const char* unit) {
  if (std::isfinite(value) && value > 0) return;
  throw UsageError(fmt::format("{} = {}: allowed: more than 0 {}", option, value, unit));
}

void require_time(const char* option, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw UsageError(fmt::format("{} = {}: allowed: 0 seconds or more", option, value));
}

void validate(const DeviceOptions& options) {
  require_rate("link_bandwidth", options.link_bandwidth, "bytes per second");
  require_rate("memory_bandwidth", options.memory_bandwidth, "bytes per second");
  require_time("link_latency", options.link_latency);
  require_time("launch_seconds", options.kernels.launch);
}

std::unique_ptr<Device> open_cuda(const CudaPlatform& platform, const CudaInventory& inventory,
                                  int index, const DeviceOptions& options) {
  const std::string obstacle = cuda_obstacle(inventory, index, platform.machine_code, platform.ptx);
  if (!obstacle.empty()) {
    throw DeviceError(fmt::format("device 'cuda:{}' cannot be used: {}", index, obstacle));
  }
  return std::make_unique<CudaDevice>(platform, index, inventory.gpus[static_cast<size_t>(index)],
                                      inventory.gpus.size() == 1, options);
}

// Opens cuda:0 or, if that fails, the processor, with a notice that says why.
std::unique_ptr<Device> open_auto(const CudaPlatform& platform, const DeviceOptions& options) {
  if (platform.calls != nullptr) {
    try {
      return open_auto_gpu(options, platform);
    } catch (const UsageError&) {
      throw;  // the options are wrong on any device
    } catch (const Error& error) {
      log_notice(fmt::format("device 'auto' uses the cpu: {}", error.what()));
    }
  }
  return std::make_unique<CpuDevice>(options);
}

}  // namespace

std::unique_ptr<Device> open_auto_gpu(DeviceOptions options, const CudaPlatform& platform) {
  if (platform.calls == nullptr) throw DeviceError("this build has no CUDA device");
  options.name = "auto";
  return open_cuda(platform, take_inventory(*platform.calls), 0, options);
}

std::unique_ptr<Device> open_device(const DeviceOptions& options) {
  return open_device(options, cuda_platform());
}

std::unique_ptr<Device> open_device(const DeviceOptions& options, const CudaPlatform& platform) {
  validate(options);
  cpu::active_target();  // reports a wrong FASA_TARGET here, not in the first kernel
  if (options.name == "cpu") return std::make_unique<CpuDevice>(options);
  if (options.name == "auto") return open_auto(platform, options);
  if (options.name == "emulated") return std::make_unique<EmulatedDevice>(options);
  const char* const allowed =
      platform.calls != nullptr ? "auto, cpu, emulated, cuda:N" : "auto, cpu, emulated";
  const std::optional<int> index = parse_cuda_name(options.name);
  if (!index) {
    throw UsageError(fmt::format("device '{}' is unknown; allowed: {}", options.name, allowed));
  }
  if (platform.calls == nullptr) {
    throw UsageError(fmt::format("device '{}': this build has no CUDA device; allowed: {}",
                                 options.name, allowed));
  }
  return open_cuda(platform, take_inventory(*platform.calls), *index, options);
}

Stream adopt_stream(Device& device, void* native, std::string_view name) {
  const DeviceKind kind = device.kind();
  if (kind == DeviceKind::kCpu && native == nullptr) return {{kind, nullptr}, nullptr};
  if (kind != DeviceKind::kCuda) {
    throw UsageError(
        fmt::format("the device {} has no native streams; use create_stream", device.name()));
  }
  if (native == nullptr) {
    throw UsageError(
        "native is null; allowed: a cudaStream_t, including cudaStreamLegacy and "
        "cudaStreamPerThread");
  }
  // The device's stream handle is its own record, not the native stream.
  return dynamic_cast<CudaDevice&>(device).adopt_stream(native, name);
}

}  // namespace fasa
