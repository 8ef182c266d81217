// Slots, page tables and lengths that a caller has in device memory.
//
// A step is planned on the host: which rows it fetches, which pages it opens and whether it fits is
// known from these numbers, and rows in host memory are addressed by tables that the host writes. So
// they are copied on the caller's stream, behind whatever computes them, and waited for. An upper
// bound of the lengths on the host would not do: pages, not their number, are what is planned. What
// a step's calls share is read by one take(), with one wait for all layers; a call that names
// anything else in device memory waits once itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "offload/device.h"

namespace fasa {

struct BlockTable;

// Of a table from its first to its last entry; 0 for one that no call takes. Throws UsageError for one
// that runs backwards, but on devices that work on host memory, where it is not copied.
size_t table_entries(const Device& device, const BlockTable& table);

// An argument of a call.
struct CallerArray {
  const char* name;
  const void* data;  // null only of no bytes
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

  // Reads `ranges`, in place of those of the last take(): calls that name arrays inside them take
  // what was read, whatever lies there by then. Ranges that host code can read need none of this
  // and are left alone. Throws UsageError for another device's memory, BudgetError; the ranges of
  // before stay then. DeviceError: there are none then.
  void take(std::span<const MemoryRange> ranges, StreamView stream);

  // Makes every array's data an address that host code can read until the next call. Throws
  // UsageError naming the argument for misaligned addresses, for another device's memory, and for
  // arrays of which some lie in host memory and some in the device's: a stale copy beside what is
  // meant, as a rule.
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
  // Of device memory.
  void copy(std::span<const MemoryRange> ranges, Copies* to, StreamView stream);

  Device& device_;
  Copies taken_;  // by take()
  Copies once_;   // by read()
};

}  // namespace fasa
