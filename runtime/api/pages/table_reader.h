// Reads slots, page tables and lengths that a caller holds in device memory.
//
// The host plans a step: which rows it fetches, which pages it opens and whether it fits depend on
// these numbers, and rows in host memory are addressed by tables that the host writes. The reader
// copies them on the caller's stream, after the work that computes them, and waits. An upper bound
// of the lengths would not be enough, because the plan needs the pages themselves. One take() reads
// the arrays that a step's calls share, with one wait for all layers; a call that names other
// device memory waits once more.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "offload/device.h"

namespace fasa {

struct BlockTable;

// Entries from the first to the last one used; 0 for a table that no call accepts. Throws
// UsageError for a negative stride, except on devices that work on host memory, where the table is
// not copied.
size_t table_entries(const Device& device, const BlockTable& table);

// One argument of a call.
struct CallerArray {
  const char* name;
  const void* data;  // null only if bytes is 0
  size_t bytes;
  size_t alignment;
};

struct MemoryRange {
  const void* data = nullptr;
  size_t bytes = 0;
};

// One thread at a time.
class TableReader {
 public:
  explicit TableReader(Device& device) : device_(device) {}

  // Reads `ranges` and replaces those of the last take(). Calls that name arrays inside them use
  // the values read here, even if the memory has changed since. Ranges that host code can read are
  // left alone. Throws UsageError for another device's memory, and BudgetError; the earlier ranges
  // then stay. After DeviceError there are none.
  void take(std::span<const MemoryRange> ranges, StreamView stream);

  // Replaces every array's data by an address that host code can read until the next call. Throws
  // UsageError naming the argument for misaligned addresses, for another device's memory, and if
  // some arrays lie in host memory and some in device memory, which usually means a stale copy.
  void read(std::span<CallerArray> arrays, StreamView stream);

 private:
  struct Copied {
    const std::byte* device;
    size_t bytes;
    size_t offset;  // in memory
  };
  struct Copies {
    Buffer memory;  // host memory, pinned
    std::vector<Copied> ranges;
    const std::byte* find(const void* data, size_t bytes) const;
  };

  bool on_device(const char* name, const void* data);
  bool require_alike(std::span<const CallerArray> arrays);
  // Copies ranges of device memory.
  void copy(std::span<const MemoryRange> ranges, Copies* to, StreamView stream);

  Device& device_;
  Copies taken_;  // of take()
  Copies once_;   // of read()
};

}  // namespace fasa
