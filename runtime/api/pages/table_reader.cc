#include "runtime/api/pages/table_reader.h"

#include <fmt/format.h>

#include "offload/memory_location.h"
#include "runtime/api/caller_memory.h"
#include "runtime/api/pages/paged_request.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kMaxEntries = int64_t{1} << 40;

// A copy has the alignment of its source.
size_t offset_in(size_t offset, const void* data) {
  const size_t next = (offset + kAlignment - 1) / kAlignment * kAlignment;
  return next + reinterpret_cast<uintptr_t>(data) % kAlignment;
}

}  // namespace

size_t table_entries(const Device& device, const BlockTable& table) {
  if (table.pages == nullptr || table.sequences < 1 || table.columns < 1) return 0;
  if (table.stride < 0) {
    if (device.kind() != DeviceKind::kCuda) return 0;
    throw UsageError(
        fmt::format("block_table has stride {} between its sequences; allowed on {}: 0 "
                    "or more",
                    table.stride, device.name()));
  }
  int64_t entries = 0;
  if (__builtin_mul_overflow(table.sequences - 1, table.stride, &entries) ||
      __builtin_add_overflow(entries, table.columns, &entries) || entries > kMaxEntries) {
    throw UsageError(
        fmt::format("a block table of {} sequences, {} columns and stride {} exceeds the "
                    "address space",
                    table.sequences, table.columns, table.stride));
  }
  return static_cast<size_t>(entries);
}

const std::byte* TableReader::Copies::find(const void* data, size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(data);
  for (const Copied& range : ranges) {
    if (at < range.device || at > range.device + range.bytes) continue;
    const auto first = static_cast<size_t>(at - range.device);
    if (bytes <= range.bytes - first) return memory.data() + range.offset + first;
  }
  return nullptr;
}

bool TableReader::on_device(const char* name, const void* data) {
  switch (location_of(device_, data)) {
    case MemoryLocation::kShared:
    case MemoryLocation::kHost:
      return false;
    case MemoryLocation::kDevice:
      return true;
    case MemoryLocation::kElsewhere:
      break;
  }
  throw UsageError(
      fmt::format("{} lies in another device's memory: allowed: host memory, or that of "
                  "{}",
                  name, device_.name()));
}

void TableReader::copy(std::span<const MemoryRange> ranges, Copies* to, StreamView stream) {
  std::vector<Copied> made;
  size_t end = 0;
  for (const MemoryRange& range : ranges) {
    const size_t offset = offset_in(end, range.data);
    made.push_back({static_cast<const std::byte*>(range.data), range.bytes, offset});
    end = offset + range.bytes;
  }
  if (to->memory.bytes() < end) {
    to->memory = device_.allocate(MemorySpace::kHost, end, "tables of callers");
  }
  to->ranges.clear();
  std::vector<CopyRange> copies;
  for (const Copied& range : made) {
    copies.push_back({to->memory.data() + range.offset, range.device, range.bytes});
  }
  device_.copy_all(copies, CopyKind::kDeviceToHost, stream);
  device_.synchronize(stream);  // the only wait: planning needs these values
  to->ranges = std::move(made);
}

void TableReader::take(std::span<const MemoryRange> ranges, StreamView stream) {
  std::vector<MemoryRange> there;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].bytes == 0) continue;
    const std::string name = fmt::format("ranges[{}]", i);
    if (ranges[i].data == nullptr) throw UsageError(fmt::format("{}.data is null", name));
    if (on_device(name.c_str(), ranges[i].data)) there.push_back(ranges[i]);
  }
  if (there.empty()) return taken_.ranges.clear();
  copy(there, &taken_, stream);
}

// Whether the arrays lie in device memory.
bool TableReader::require_alike(std::span<const CallerArray> arrays) {
  const CallerArray* first = nullptr;
  bool there = false;
  for (const CallerArray& array : arrays) {
    if (array.bytes == 0 || array.data == nullptr) continue;
    require_aligned(array.name, array.data, array.alignment);
    const bool this_one = on_device(array.name, array.data);
    if (first == nullptr) {
      first = &array;
      there = this_one;
    }
    if (this_one == there) continue;
    throw UsageError(
        fmt::format("{} is in {}, {} in {}; all tables of one call must be in the same memory",
                    array.name, this_one ? device_.name() : "host memory", first->name,
                    there ? device_.name() : "host memory"));
  }
  return there;
}

void TableReader::read(std::span<CallerArray> arrays, StreamView stream) {
  if (!require_alike(arrays)) return;
  std::vector<MemoryRange> missing;
  for (const CallerArray& array : arrays) {
    if (array.bytes == 0 || taken_.find(array.data, array.bytes) != nullptr) continue;
    missing.push_back({array.data, array.bytes});
  }
  if (!missing.empty()) copy(missing, &once_, stream);
  for (CallerArray& array : arrays) {
    if (array.bytes == 0) continue;
    const std::byte* const taken = taken_.find(array.data, array.bytes);
    array.data = taken != nullptr ? taken : once_.find(array.data, array.bytes);
  }
}

}  // namespace fasa
