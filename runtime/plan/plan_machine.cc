#include "runtime/plan/plan_machine.h"

#include <algorithm>

#include "offload/cuda/gpu_traits.h"
#include "offload/host/control_group.h"
#include "offload/host/topology.h"
#include "runtime/catalog/gpu_catalog.h"
#include "runtime/plan/read_bandwidth.h"

namespace fasa {
namespace {

// Memory of a CUDA context with its kernels, and the rounding of memory allocators.
constexpr uint64_t kDriverBytes = uint64_t{512} << 20;

PlanMachine this_machine() {
  const Topology& topology = Topology::machine();
  size_t cache = 0;
  for (const CacheLevel& level : topology.caches()) {
    cache = std::max(cache, static_cast<size_t>(level.bytes));
  }
  const size_t bytes = std::clamp(2 * cache, size_t{64} << 20, size_t{512} << 20);
  PlanMachine machine;
  machine.name = "this machine's processor";
  machine.rates.unified = true;
  machine.traits = kHostTraits;
  machine.rates.kernels = KernelCosts::with_launch(0);
  machine.rates.memory_bandwidth = read_bandwidth(bytes, 3);
  machine.rates.operations = 0;
  machine.device_memory = topology.memory_bytes();
  return machine;
}

PlanMachine accelerator(const Config& config, const GivenMachine& given) {
  const DeviceOptions options = config.device_options();
  PlanMachine machine;
  machine.name = given.any() ? "the given accelerator" : "the emulated device";
  machine.traits = kEmulatedTraits;
  machine.rates.memory_bandwidth = options.memory_bandwidth;
  machine.rates.operations = options.operations;
  machine.rates.kernels = options.kernels;
  machine.rates.link_bandwidth = options.link_bandwidth;
  machine.rates.link_latency = options.link_latency;
  if (given.any()) machine.traits = gpu_traits(kUsualCapability);
  if (!config.device.gpu.empty()) {
    const Gpu& gpu = find_gpu(config.device.gpu);
    machine.traits = gpu_traits(gpu.compute_capability);
    machine.name = gpu.name;
    machine.device_memory = gpu.memory_bytes;
    machine.reserved_bytes = kDriverBytes;
  }
  if (given.vram) {
    machine.device_memory = given.vram;
    machine.reserved_bytes = kDriverBytes;
  }
  if (given.memory_bandwidth) machine.rates.memory_bandwidth = *given.memory_bandwidth;
  if (given.link_bandwidth) machine.rates.link_bandwidth = *given.link_bandwidth;
  machine.traits.rates = machine.rates;
  return machine;
}

}  // namespace

uint64_t PlanMachine::usable_device_bytes() const {
  if (!device_memory) return UINT64_MAX;
  return *device_memory - std::min(*device_memory, reserved_bytes);
}

PlanMachine make_plan_machine(const Config& config, const GivenMachine& given) {
  const bool modelled =
      config.device.name == "emulated" || !config.device.gpu.empty() || given.any();
  PlanMachine machine = modelled ? accelerator(config, given) : this_machine();
  if (config.memory.device_memory &&
      (!machine.device_memory || *config.memory.device_memory < machine.usable_device_bytes())) {
    // A budget in the config is entirely available to fasa.
    machine.device_memory = config.memory.device_memory;
    machine.reserved_bytes = 0;
  }
  machine.host_memory = config.memory.host_memory;
  machine.this_host_memory = std::min(Topology::machine().memory_bytes(),
                                      ControlGroup::own().memory_limit.value_or(UINT64_MAX));
  return machine;
}

}  // namespace fasa
