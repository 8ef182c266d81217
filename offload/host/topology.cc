#include "offload/host/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/units.h"

namespace fasa {
namespace {

int count_within(hwloc_topology_t topology, hwloc_const_cpuset_t set, hwloc_obj_type_t type) {
  return std::max(hwloc_get_nbobjs_inside_cpuset_by_type(topology, set, type), 0);
}

std::vector<NumaNode> read_nodes(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    nodes.push_back({static_cast<int>(object->os_index), object->attr->numanode.local_memory,
                     count_within(topology, object->cpuset, HWLOC_OBJ_CORE),
                     count_within(topology, object->cpuset, HWLOC_OBJ_PU)});
  }
  return nodes;
}

std::vector<CacheLevel> read_caches(hwloc_topology_t topology) {
  constexpr std::pair<hwloc_obj_type_t, const char*> kTypes[] = {{HWLOC_OBJ_L1CACHE, "L1d"},
                                                                 {HWLOC_OBJ_L2CACHE, "L2"},
                                                                 {HWLOC_OBJ_L3CACHE, "L3"},
                                                                 {HWLOC_OBJ_L4CACHE, "L4"}};
  std::vector<CacheLevel> caches;
  for (const auto& [type, name] : kTypes) {
    const int count = hwloc_get_nbobjs_by_type(topology, type);
    if (count <= 0) continue;
    const hwloc_obj_t first = hwloc_get_obj_by_type(topology, type, 0);
    caches.push_back({name, first->attr->cache.size, count});
  }
  return caches;
}

// The first node local to an object or set, or -1.
int first_node(hwloc_const_nodeset_t nodeset) {
  return nodeset == nullptr ? -1 : hwloc_bitmap_first(nodeset);
}

}  // namespace

void Topology::Free::operator()(hwloc_topology* topology) const {
  hwloc_topology_destroy(topology);
}

Topology::Topology(Handle handle) : handle_(std::move(handle)) {
  nodes_ = read_nodes(handle_.get());
  caches_ = read_caches(handle_.get());
  packages_ = std::max(hwloc_get_nbobjs_by_type(handle_.get(), HWLOC_OBJ_PACKAGE), 0);
  cores_ = std::max(hwloc_get_nbobjs_by_type(handle_.get(), HWLOC_OBJ_CORE), 0);
  threads_ = std::max(hwloc_get_nbobjs_by_type(handle_.get(), HWLOC_OBJ_PU), 0);
}

Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;
Topology::~Topology() = default;

const Topology& Topology::machine() {
  static const Topology topology = [] {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) throw DeviceError("hwloc_topology_init failed");
    Handle handle(raw);
    if (hwloc_topology_load(raw) != 0)
      throw DeviceError("hwloc cannot read this machine's topology");
    return Topology(std::move(handle));
  }();
  return topology;
}

Topology Topology::synthetic(const std::string& description) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw DeviceError("hwloc_topology_init failed");
  Handle handle(raw);
  if (hwloc_topology_set_synthetic(raw, description.c_str()) != 0 ||
      hwloc_topology_load(raw) != 0) {
    throw UsageError(fmt::format("'{}' is not a synthetic hwloc topology", description));
  }
  return Topology(std::move(handle));
}

uint64_t Topology::memory_bytes() const {
  uint64_t bytes = 0;
  for (const NumaNode& node : nodes_) bytes += node.memory_bytes;
  return bytes;
}

bool Topology::has_node(int index) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [&](const NumaNode& node) { return node.index == index; });
}

std::string Topology::node_list() const {
  std::vector<int> indices;
  for (const NumaNode& node : nodes_) indices.push_back(node.index);
  return fmt::format("{}", fmt::join(indices, ", "));
}

int Topology::node_of_process() const {
  int node = -1;
  if (nodes_.size() > 1) {
    const hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
    const hwloc_nodeset_t nodeset = hwloc_bitmap_alloc();
    if (hwloc_get_last_cpu_location(handle_.get(), cpus, HWLOC_CPUBIND_THREAD) == 0) {
      hwloc_cpuset_to_nodeset(handle_.get(), cpus, nodeset);
      node = first_node(nodeset);
    }
    hwloc_bitmap_free(nodeset);
    hwloc_bitmap_free(cpus);
  }
  return has_node(node) ? node : nodes_.front().index;
}

int Topology::node_of_pci(const std::string& bus_id) const {
  // Scans devices only here: plugins make that slow (tens of milliseconds), and nothing else needs
  // it.
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return node_of_process();
  const Handle handle(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // Only bus ids are needed, and sysfs has them: no plugin has to query a driver.
  for (const char* plugin : {"pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  }
  if (hwloc_topology_load(raw) != 0) return node_of_process();
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(raw, bus_id.c_str());
  if (device == nullptr) return node_of_process();
  const hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(raw, device);
  const int node = ancestor == nullptr ? -1 : first_node(ancestor->nodeset);
  return has_node(node) ? node : node_of_process();
}

std::string Topology::describe() const {
  std::string text = fmt::format("{} packages, {} cores, {} hardware threads, {} of memory\n",
                                 packages_, cores_, threads_, format_bytes(memory_bytes()));
  for (const NumaNode& node : nodes_) {
    text += fmt::format("NUMA node {}: {}, {} cores, {} hardware threads\n", node.index,
                        format_bytes(node.memory_bytes), node.cores, node.threads);
  }
  for (const CacheLevel& cache : caches_) {
    text += fmt::format("{}: {} x {}\n", cache.name, cache.count, format_bytes(cache.bytes));
  }
  return text;
}

}  // namespace fasa
