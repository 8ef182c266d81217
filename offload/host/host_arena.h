// Host memory for rows and for devices emulated on the host, placed on NUMA nodes and on huge pages
// if available.
//
// Pages are first touched by the code that writes them, never here: a reservation of 16 GiB costs
// nothing until rows arrive. So placement is set by the mapping's policy, not by the first touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "offload/device_options.h"

namespace fasa {

// Thread-safe.
class HostArena {
 public:
  // `local_node`: where `auto` places memory. Throws UsageError for a node that does not exist (and
  // lists those that do). `alias_bytes`: for benchmarks only, see DeviceOptions.
  HostArena(const NumaPolicy& policy, int local_node, std::optional<uint64_t> alias_bytes);
  HostArena(const HostArena&) = delete;  // owns its mappings
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();

  // Contents indeterminate; `alignment`: a power of two up to a page. Returns null if the system is
  // out of memory. Blocks below kMappedBytes come from the heap, without placement.
  std::byte* allocate(size_t bytes, size_t alignment);
  // The same, for memory that may be aliased.
  std::byte* allocate_aliased(size_t bytes);
  void free(std::byte* data) noexcept;

  // "node 0", "nodes 0, 1, interleaved", "the node that touches it first".
  std::string placement() const;

  static constexpr size_t kMappedBytes = size_t{1} << 20;
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kHugePageBytes = size_t{2} << 20;

 private:
  std::byte* map(size_t bytes);
  void keep(std::byte* data, size_t length);
  void place(void* data, size_t bytes);

  enum class Mode : uint8_t { kFirstTouch, kNode, kInterleave } mode_ = Mode::kFirstTouch;
  int node_ = 0;
  uint64_t alias_bytes_ = 0;  // 0: off
  int alias_file_ = -1;
  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> mappings_;  // start -> length
};

}  // namespace fasa
