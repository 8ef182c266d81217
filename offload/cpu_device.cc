#include "offload/cpu_device.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <optional>

#include "kernels/cpu/kernels.h"
#include "offload/kernel_names.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

struct CpuEvent {
  std::optional<double> seconds;
};

CpuEvent& event_of(EventView event) { return *static_cast<CpuEvent*>(event.native); }

template <typename Params, KernelWork (*kKernel)(const Params&)>
void launch_now(const Params& params, StreamView stream) {
  if (stream.native == nullptr) {
    kKernel(params);
    return;
  }
  static_cast<CpuExecutor*>(stream.native)->run(kernel_name(params), [&] { kKernel(params); });
}

constexpr KernelTable kTable = {
    launch_now<AppendParams, cpu::append>,   launch_now<WriteBackParams, cpu::write_back>,
    launch_now<RestoreParams, cpu::restore>, launch_now<SelectParams, cpu::select>,
    launch_now<ResolveParams, cpu::resolve>, launch_now<SpeculateParams, cpu::speculate>,
    launch_now<GatherParams, cpu::gather>,   launch_now<AttendParams, cpu::attend>,
    launch_now<PrefillParams, cpu::prefill>};

}  // namespace

void CpuExecutor::rethrow_named(const char* name) {
  std::string reason = "unknown exception";
  try {
    throw;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
  }
  throw DeviceError(fmt::format("operation '{}' failed on cpu: {}", name, reason));
}

CpuDevice::CpuDevice(const DeviceOptions& options)
    : start_(std::chrono::steady_clock::now()),
      threads_(options.threads),
      executor_(threads_.value()),
      memory_(options, /*unified=*/true) {}

double CpuDevice::seconds_now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

Stream CpuDevice::create_stream(StreamPriority, std::string_view) {
  return {this, {DeviceKind::kCpu, &executor_}};
}

Event CpuDevice::create_event() { return {this, {new CpuEvent}}; }
void CpuDevice::destroy_event(EventView event) noexcept { delete &event_of(event); }

void CpuDevice::record(EventView event, StreamView) { event_of(event).seconds = seconds_now(); }

double CpuDevice::seconds_at(EventView event) {
  const auto seconds = event_of(event).seconds;
  if (!seconds) throw UsageError("seconds_at: the event was never recorded");
  return *seconds;
}

void CpuDevice::copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                     StreamView) {
  if (bytes == 0) return;
  const double begin = seconds_now();
  std::memcpy(destination, source, bytes);
  const double seconds = seconds_now() - begin;
  const std::lock_guard lock(mutex_);
  if (kind == CopyKind::kHostToDevice) {
    totals_.h2d_bytes += bytes;
    totals_.h2d_seconds += seconds;
    ++totals_.h2d_operations;
  } else if (kind == CopyKind::kDeviceToHost) {
    totals_.d2h_bytes += bytes;
    totals_.d2h_seconds += seconds;
    ++totals_.d2h_operations;
  }
}

void CpuDevice::fill(void* destination, int byte, size_t bytes, StreamView) {
  if (bytes > 0) std::memset(destination, byte, bytes);
}

const KernelTable& CpuDevice::kernels() const { return kTable; }

void CpuDevice::launch(StreamView, const char* name, std::function<KernelWork()> work) {
  executor_.run(name, work);
}

TransferTotals CpuDevice::transfers() {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::byte* CpuDevice::do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  return memory_.allocate(space, bytes, purpose);
}

void CpuDevice::do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept {
  memory_.free(space, data, bytes);
}

}  // namespace fasa
