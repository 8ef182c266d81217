#include "offload/cuda/cuda_choice.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "runtime/base/error.h"

namespace fasa {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::vector<int> numbers(std::string_view list) {
  std::vector<int> values;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) break;
    values.push_back(value);
    at = next < end ? next + 1 : end;
  }
  return values;
}

// Reports a driver that is missing, too old or not able to answer.
std::string driver_obstacle(const CudaInventory& inventory) {
  const bool answered = inventory.status == cuda_status::kSuccess ||
                        inventory.status == cuda_status::kInsufficientDriver ||
                        inventory.status == cuda_status::kNoDevice;
  if (inventory.driver == 0 && answered) {
    return "there is no NVIDIA driver on this machine; install one, or in a container start it "
           "with access to the GPU (docker run --gpus all)";
  }
  if (inventory.status == cuda_status::kInsufficientDriver) {
    return fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, but this build needs {}; install a "
        "newer driver, or build with an older toolkit (12.4 or newer)",
        version_text(inventory.driver), version_text(inventory.runtime));
  }
  if (inventory.status == cuda_status::kSystemDriverMismatch) {
    return "the NVIDIA driver's library and its kernel module have different versions; restart the "
           "machine";
  }
  if (inventory.status == cuda_status::kSystemNotReady) {
    return "the NVIDIA driver is not ready; start nvidia-fabricmanager, or wait until it has "
           "started";
  }
  if (inventory.status == cuda_status::kNoDevice) {
    return "the NVIDIA driver reports no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, which may "
           "hide GPUs";
  }
  return fmt::format(
      "the NVIDIA driver cannot be used: {}; check nvidia-smi; after a suspend or an update, "
      "reload the module nvidia_uvm or restart the machine",
      inventory.error);
}

std::string gpu_list(const CudaInventory& inventory) {
  std::string list;
  for (size_t i = 0; i < inventory.gpus.size(); ++i) {
    list += fmt::format("{}cuda:{} ({})", i == 0 ? "" : ", ", i, inventory.gpus[i].name);
  }
  return list;
}

}  // namespace

CudaInventory take_inventory(CudaCalls& calls) {
  CudaInventory inventory;
  const auto failed = [&](CudaStatus status) {
    if (status == cuda_status::kSuccess) return false;
    calls.take_last_error();
    inventory.status = status;
    inventory.error = fmt::format("{} ({})", calls.name_of(status), calls.text_of(status));
    return true;
  };
  int count = 0;
  if (failed(calls.versions(&inventory.driver, &inventory.runtime)) ||
      failed(calls.count_gpus(&count))) {
    return inventory;
  }
  for (int i = 0; i < count; ++i) {
    CudaGpu gpu;
    if (failed(calls.describe(i, &gpu))) break;
    inventory.gpus.push_back(gpu);
  }
  return inventory;
}

std::optional<int> parse_cuda_name(const std::string& name) {
  constexpr std::string_view kPrefix = "cuda";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  if (name == kPrefix) return 0;
  if (name[kPrefix.size()] != ':') return std::nullopt;
  const char* const begin = name.data() + kPrefix.size() + 1;
  const char* const end = name.data() + name.size();
  int index = -1;
  const auto [stop, error] = std::from_chars(begin, end, index);
  if (error != std::errc() || stop != end || index < 0) {
    throw UsageError(fmt::format(
        "device '{}': 'cuda:' must be followed by the number of a GPU, as in cuda:0", name));
  }
  return index;
}

bool runs_on(const CudaGpu& gpu, const std::string& machine_code, const std::string& ptx) {
  for (const int code : numbers(machine_code)) {
    if (code / 10 == gpu.major && code % 10 <= gpu.minor) return true;
  }
  for (const int code : numbers(ptx)) {
    if (code <= gpu.major * 10 + gpu.minor) return true;
  }
  return false;
}

std::string cuda_obstacle(const CudaInventory& inventory, int index,
                          const std::string& machine_code, const std::string& ptx) {
  if (inventory.driver == 0 || inventory.status != cuda_status::kSuccess) {
    return driver_obstacle(inventory);
  }
  const auto count = static_cast<int>(inventory.gpus.size());
  if (count == 0) {
    CudaInventory none = inventory;
    none.status = cuda_status::kNoDevice;
    return driver_obstacle(none);
  }
  if (index >= count) {
    return fmt::format("this GPU does not exist; the machine has {}", gpu_list(inventory));
  }
  const CudaGpu& gpu = inventory.gpus[static_cast<size_t>(index)];
  if (!runs_on(gpu, machine_code, ptx)) {
    return fmt::format(
        "{} has compute capability {}.{}, which this build does not support (it supports {}); "
        "build with -DCMAKE_CUDA_ARCHITECTURES={}{}, or use another GPU (7.5 or newer)",
        gpu.name, gpu.major, gpu.minor, machine_code, gpu.major, gpu.minor);
  }
  if (gpu.prohibited) {
    return fmt::format("{} is in compute mode 'prohibited'; change it with nvidia-smi -i {} -c 0",
                       gpu.name, index);
  }
  if (!gpu.shares_host_addresses) {
    return fmt::format(
        "{} cannot read host memory at host addresses, which rows in host memory need; use another "
        "GPU or, on Windows, run on Linux itself instead of WSL",
        gpu.name);
  }
  return "";
}

}  // namespace fasa
