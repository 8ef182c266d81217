#include "offload/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace fasa {

Buffer::~Buffer() {
  if (data_ != nullptr) device_->do_free(space_, data_, bytes_);
}

void Device::launch(StreamView stream, const char* name, std::function<KernelWork()> work,
                    OperationTag tag) {
  if (host_work() == nullptr) {
    throw UsageError(fmt::format(
        "operation '{}' is host code, which {} cannot run; use --device cpu or emulated", name,
        this->name()));
  }
  host_work()->run(stream, name, std::move(work), tag);
}

Buffer Device::allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  if (bytes == 0) return {};
  while (true) {
    try {
      return {this, space, do_allocate(space, bytes, purpose), bytes};
    } catch (const BudgetError&) {
      const bool reclaimed =
          std::any_of(reclaimers_.begin(), reclaimers_.end(),
                      [&](MemoryReclaimer* reclaimer) { return reclaimer->reclaim(space, bytes); });
      if (!reclaimed) throw;
    }
  }
}

const char* copy_name(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
      return "copy host to device";
    case CopyKind::kDeviceToHost:
      return "copy device to host";
    case CopyKind::kDeviceToDevice:
      return "copy device to device";
    case CopyKind::kHostToHost:
      return "copy host to host";
  }
  return "copy";
}

KernelWork copy_work(CopyKind kind, uint64_t bytes) {
  return {.device_bytes = kind == CopyKind::kDeviceToDevice ? bytes : 0,
          .h2d_bytes = kind == CopyKind::kHostToDevice ? bytes : 0,
          .d2h_bytes = kind == CopyKind::kDeviceToHost ? bytes : 0};
}

}  // namespace fasa
