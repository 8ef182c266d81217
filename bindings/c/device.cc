// Devices and streams.
#include <fmt/format.h>

#include <utility>

#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "bindings/c/status.h"
#include "runtime/api/caller_memory.h"

using fasa::c::guarded;
using fasa::c::required;

fasa_status fasa_device_open(const fasa_config* config, fasa_device** device) {
  return guarded([&] {
    fasa_device*& result = required(device, "device");
    auto opened = fasa::c::open_shared(config != nullptr ? config->config : fasa::Config{});
    std::string name = opened->name();
    result = new fasa_device{std::move(opened), std::move(name)};
  });
}

void fasa_device_destroy(fasa_device* device) { delete device; }

fasa_status fasa_device_name(const fasa_device* device, const char** name) {
  return guarded([&] { required(name, "name") = required(device, "device").name.c_str(); });
}

fasa_status fasa_device_memory(const fasa_device* device, fasa_memory_space space,
                               fasa_memory_use* use) {
  return guarded([&] {
    const fasa::Device& from = *required(device, "device").device;
    if (space != FASA_MEMORY_DEVICE && space != FASA_MEMORY_HOST) {
      throw fasa::UsageError(fmt::format(
          "space = {}: allowed: FASA_MEMORY_DEVICE, FASA_MEMORY_HOST", static_cast<int>(space)));
    }
    const fasa::MemoryUse now = from.memory(space == FASA_MEMORY_DEVICE ? fasa::MemorySpace::kDevice
                                                                        : fasa::MemorySpace::kHost);
    const fasa_memory_use values{sizeof(fasa_memory_use), now.used_bytes, now.peak_bytes,
                                 now.limit_bytes};
    fasa::c::give(values, use, "use");
  });
}

fasa_status fasa_stream_create(fasa_device* device, fasa_stream** stream) {
  return guarded([&] {
    fasa_stream*& result = required(stream, "stream");
    const auto& on = required(device, "device").device;
    fasa::Stream own = on->create_stream(fasa::StreamPriority::kNormal, "compute");
    const fasa::StreamView view = own.view();
    result = new fasa_stream{on, std::move(own), view};
  });
}

fasa_status fasa_stream_from_native(fasa_device* device, void* native, fasa_stream** stream) {
  return guarded([&] {
    fasa_stream*& result = required(stream, "stream");
    const auto& on = required(device, "device").device;
    fasa::Stream own = fasa::adopt_stream(*on, native, "engine");
    const fasa::StreamView view = own.view();
    result = new fasa_stream{on, std::move(own), view};
  });
}

fasa_status fasa_stream_synchronize(fasa_stream* stream) {
  return guarded([&] {
    const fasa_stream& on = required(stream, "stream");
    fasa::require_alive(*on.device, on.view);
    on.device->synchronize(on.view);
  });
}

void fasa_stream_destroy(fasa_stream* stream) { delete stream; }
