// The machine that a plan is for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "offload/device_traits.h"
#include "runtime/config/config.h"
#include "runtime/plan/cost_model.h"

namespace fasa {

struct PlanMachine {
  std::string name;
  MachineRates rates;
  DeviceTraits traits;                    // of the device that would run there
  std::optional<uint64_t> device_memory;  // none: no limit is known
  uint64_t reserved_bytes = 0;            // of it, for the driver and its context
  std::optional<uint64_t> host_memory;    // for rows; none: no limit is known
  double tensor_flops = 0;                // 0: unknown

  // Of everything that a model and its cache may place on the device; UINT64_MAX: no limit.
  uint64_t usable_device_bytes() const;
};

// What was given beside the config, over the GPU's own figures.
struct GivenMachine {
  std::optional<uint64_t> vram;            // bytes
  std::optional<double> memory_bandwidth;  // bytes per second
  std::optional<double> link_bandwidth;
  bool any() const { return vram || memory_bandwidth || link_bandwidth; }
};

// The GPU that the config names, an emulated or given accelerator, or else this machine's processor
// with its memory, whose bandwidth is measured (a second or less). A config's device_memory and
// host_memory limit what it has. Throws UsageError for an unknown GPU.
PlanMachine make_plan_machine(const Config& config, const GivenMachine& given);

}  // namespace fasa
