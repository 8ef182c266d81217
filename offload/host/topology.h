// The machine as hwloc sees it: NUMA nodes, cores, caches, memory, and the distance between them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace fasa {

struct NumaNode {
  int index = 0;  // the operating system's number
  uint64_t memory_bytes = 0;
  int cores = 0;    // physical
  int threads = 0;  // hardware threads
};

struct CacheLevel {
  std::string name;    // "L1d", "L2", "L3"
  uint64_t bytes = 0;  // per instance
  int count = 0;
};

class Topology {
 public:
  // The machine of this process, limited to what the process may use; loaded once.
  static const Topology& machine();
  // A machine from hwloc's synthetic notation ("numa:2 core:4 pu:2"). Throws UsageError.
  static Topology synthetic(const std::string& description);

  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;
  ~Topology();

  const std::vector<NumaNode>& nodes() const { return nodes_; }  // at least one
  const std::vector<CacheLevel>& caches() const { return caches_; }
  int packages() const { return packages_; }
  int cores() const { return cores_; }
  int threads() const { return threads_; }
  uint64_t memory_bytes() const;

  bool has_node(int index) const;
  std::string node_list() const;  // "0, 1"

  // The node of the core that runs the calling thread; the first node if unknown.
  int node_of_process() const;
  // The node nearest to a PCI device ("0000:3b:00.0", a GPU's bus id); node_of_process() if
  // unknown.
  int node_of_pci(const std::string& bus_id) const;

  // A description of several lines for users.
  std::string describe() const;

 private:
  struct Free {
    void operator()(hwloc_topology* topology) const;
  };
  using Handle = std::unique_ptr<hwloc_topology, Free>;

  explicit Topology(Handle handle);
  Handle handle_;
  std::vector<NumaNode> nodes_;
  std::vector<CacheLevel> caches_;
  int packages_ = 0;
  int cores_ = 0;
  int threads_ = 0;
};

}  // namespace fasa
