#include "offload/host/host_arena.h"

#include <fmt/format.h>
#include <linux/mman.h>
#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "offload/host/topology.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {
namespace {

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::byte* map_anonymous(size_t bytes, int flags) {
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// Trims a mapping of `length` to `bytes` that start on a huge page.
std::byte* keep_aligned(std::byte* data, size_t length, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const size_t skip = round_up(address, HostArena::kHugePageBytes) - address;
  if (skip > 0) munmap(data, skip);
  if (length - skip > bytes) munmap(data + skip + bytes, length - skip - bytes);
  return data + skip;
}

}  // namespace

HostArena::HostArena(const NumaPolicy& policy, int local_node,
                     std::optional<uint64_t> alias_bytes) {
  const Topology& topology = Topology::machine();
  if (policy.kind == NumaPolicy::Kind::kNode && !topology.has_node(policy.node)) {
    throw UsageError(fmt::format(
        "numa = {}: this machine does not have this node; allowed: auto, interleave, {}",
        policy.node, topology.node_list()));
  }
  // With one node, or without NUMA support, there is no choice.
  if (topology.nodes().size() > 1 && numa_available() >= 0) {
    mode_ = policy.kind == NumaPolicy::Kind::kInterleave ? Mode::kInterleave : Mode::kNode;
    node_ = policy.kind == NumaPolicy::Kind::kNode ? policy.node : local_node;
  }
  if (alias_bytes && *alias_bytes > 0) {
    alias_bytes_ = round_up(*alias_bytes, kHugePageBytes);
    alias_file_ = memfd_create("fasa-host-alias", MFD_CLOEXEC);
    if (alias_file_ < 0 || ftruncate(alias_file_, static_cast<off_t>(alias_bytes_)) != 0) {
      const std::string reason = std::strerror(errno);
      if (alias_file_ >= 0) close(alias_file_);
      throw DeviceError("memfd for aliased host memory: " + reason);
    }
  }
}

HostArena::~HostArena() {
  for (const auto& [data, length] : mappings_) munmap(data, length);
  if (alias_file_ >= 0) close(alias_file_);
}

std::byte* HostArena::map(size_t bytes) {
  // Tries reserved huge pages first. Never uses MAP_NORESERVE: it would turn an exhausted pool into
  // a SIGBUS at first touch.
  if (bytes >= kHugePageBytes) {
    const size_t length = round_up(bytes, kHugePageBytes);
    if (std::byte* data = map_anonymous(length, MAP_HUGETLB | MAP_HUGE_2MB); data != nullptr) {
      keep(data, length);
      return data;
    }
  }
  const size_t length = round_up(bytes, kPageBytes);
  std::byte* data = map_anonymous(length + kHugePageBytes, 0);
  if (data == nullptr) return nullptr;
  data = keep_aligned(data, length + kHugePageBytes, length);
  madvise(data, length, MADV_HUGEPAGE);  // optional: kernels without huge pages refuse it
  keep(data, length);
  return data;
}

// Call for each mapping at once: a mapping that cannot be recorded is unmapped.
void HostArena::keep(std::byte* data, size_t length) {
  try {
    mappings_.emplace(data, length);
  } catch (...) {
    munmap(data, length);
    throw;
  }
}

void HostArena::place(void* data, size_t bytes) {
  if (mode_ == Mode::kFirstTouch) return;
  // Calls mbind itself: numa_tonode_memory prints a line to stderr per call in containers that
  // forbid it.
  bitmask* nodes = mode_ == Mode::kInterleave ? numa_get_mems_allowed() : numa_allocate_nodemask();
  if (mode_ == Mode::kNode) numa_bitmask_setbit(nodes, static_cast<unsigned>(node_));
  const int policy = mode_ == Mode::kInterleave ? MPOL_INTERLEAVE : MPOL_PREFERRED;
  const long result = mbind(data, bytes, policy, nodes->maskp, nodes->size + 1, 0);
  const int error = errno;
  numa_bitmask_free(nodes);
  static std::atomic<bool> warned = false;
  if (result != 0 && !warned.exchange(true)) {
    log_warning(
        fmt::format("could not place host memory on {}: {}", placement(), std::strerror(error)));
  }
}

std::byte* HostArena::allocate(size_t bytes, size_t alignment) {
  if (bytes < kMappedBytes) {
    return static_cast<std::byte*>(std::aligned_alloc(alignment, round_up(bytes, alignment)));
  }
  const std::lock_guard lock(mutex_);
  std::byte* data = map(bytes);
  if (data != nullptr) place(data, round_up(bytes, kPageBytes));
  return data;
}

std::byte* HostArena::allocate_aliased(size_t bytes) {
  if (alias_bytes_ == 0 || bytes <= alias_bytes_) return allocate(bytes, kPageBytes);
  const std::lock_guard lock(mutex_);
  const size_t length = round_up(bytes, kPageBytes);
  void* range =
      mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  auto* data = static_cast<std::byte*>(range);
  for (size_t at = 0; at < length; at += alias_bytes_) {
    const size_t piece = std::min<size_t>(alias_bytes_, length - at);
    if (mmap(data + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, alias_file_, 0) ==
        MAP_FAILED) {
      munmap(data, length);
      return nullptr;
    }
  }
  keep(data, length);
  return data;
}

void HostArena::free(std::byte* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto mapping = mappings_.find(data);
  if (mapping == mappings_.end()) {
    std::free(data);
    return;
  }
  munmap(mapping->first, mapping->second);
  mappings_.erase(mapping);
}

std::string HostArena::placement() const {
  switch (mode_) {
    case Mode::kNode:
      return fmt::format("node {}", node_);
    case Mode::kInterleave:
      return fmt::format("nodes {}, interleaved", Topology::machine().node_list());
    case Mode::kFirstTouch:
      break;
  }
  return "the node of the first access";
}

}  // namespace fasa
