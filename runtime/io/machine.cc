#include "runtime/io/machine.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "kernels/target.h"
#include "offload/host/available_memory.h"
#include "offload/host/control_group.h"
#include "offload/host/topology.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (const auto target : cpu::supported_targets()) {
    names.emplace_back(cpu::target_name(target));
  }
  return names;
}

struct DeviceEntry {
  std::string_view name;
  std::string_view what;
};
constexpr std::array<DeviceEntry, 2> kDevices{
    {{"cpu", "SIMD kernels in host memory; one tier"},
     {"emulated",
      "an accelerator emulated on the host, with own memory, streams, link and virtual clock"}}};

}  // namespace

void require_usable_target() { cpu::active_target(); }

std::string kernel_target() { return std::string(cpu::target_name(cpu::active_target())); }

std::optional<uint64_t> available_memory() { return available_host_bytes(); }

Json machine_to_json() {
  const Topology& machine = Topology::machine();
  Json nodes = Json::array();
  for (const NumaNode& node : machine.nodes()) {
    nodes.push_back({{"index", node.index},
                     {"memory_bytes", node.memory_bytes},
                     {"cores", node.cores},
                     {"threads", node.threads}});
  }
  Json caches = Json::array();
  for (const CacheLevel& cache : machine.caches()) {
    caches.push_back({{"name", cache.name}, {"bytes", cache.bytes}, {"count", cache.count}});
  }
  Json devices = Json::array();
  for (const auto& device : kDevices) devices.push_back(std::string(device.name));
  return {{"topology",
           {{"packages", machine.packages()},
            {"cores", machine.cores()},
            {"threads", machine.threads()},
            {"memory_bytes", machine.memory_bytes()},
            {"nodes", nodes},
            {"caches", caches}}},
          {"devices", devices},
          {"targets", targets()},
          {"target", std::string(cpu::target_name(cpu::active_target()))}};
}

std::string group_limits() { return ControlGroup::own().describe(); }

std::string describe_machine() {
  std::string text = Topology::machine().describe();
  if (!text.ends_with('\n')) text += '\n';
  if (const std::string limits = group_limits(); !limits.empty()) {
    text += fmt::format("limits of the control group: {}\n", limits);
  }
  text += "devices\n";
  for (const auto& device : kDevices) {
    text += fmt::format("  {:<10} {}\n", device.name, device.what);
  }
  return text + fmt::format("instruction sets of the kernels: {} (in use: {})\n",
                            fmt::join(targets(), ", "), cpu::target_name(cpu::active_target()));
}

}  // namespace fasa
