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
  DeviceTraits traits;                    // of its device
  std::optional<uint64_t> device_memory;  // none: unlimited or unknown
  uint64_t reserved_bytes = 0;            // of device_memory, for the driver and its context
  std::optional<uint64_t> host_memory;    // for rows; none: unlimited or unknown
  uint64_t this_host_memory = 0;          // of the machine that plans

  // Device memory that a model and its cache may use; UINT64_MAX: no limit.
  uint64_t usable_device_bytes() const;
};

// The user's values, which override those of the GPU.
struct GivenMachine {
  std::optional<uint64_t> vram;            // bytes
  std::optional<double> memory_bandwidth;  // bytes per second
  std::optional<double> link_bandwidth;
  bool any() const { return vram || memory_bandwidth || link_bandwidth; }
};

// The GPU that the config names, an emulated or given accelerator, or else this machine's processor
// and memory, whose bandwidth is measured (at most a second). device_memory and host_memory of the
// config are limits. Throws UsageError for an unknown GPU.
PlanMachine make_plan_machine(const Config& config, const GivenMachine& given);

}  // namespace fasa
