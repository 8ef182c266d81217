// Replaces the CUDA runtime in a copy of the Python package's compiled part by the fake one
// (tests/support/fake_cuda.h), with functions for tests, called through ctypes.
#include <cstdint>
#include <cstring>

#include "offload/cuda/cuda_calls.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

FakeCuda& fake() {
  static auto* const fake_gpu = new FakeCuda;  // never destroyed: devices may outlive statics
  return *fake_gpu;
}

}  // namespace

CudaPlatform cuda_platform() { return fake().platform(); }

}  // namespace fasa

#define FAKE_GPU __attribute__((visibility("default")))

extern "C" {

FAKE_GPU void* fake_gpu_allocate(uint64_t bytes) {
  void* data = nullptr;
  fasa::fake().allocate(&data, bytes, nullptr, nullptr);
  return data;
}
FAKE_GPU void* fake_gpu_stream() {
  void* stream = nullptr;
  fasa::fake().create_stream(&stream, fasa::StreamPriority::kNormal);
  return stream;
}
FAKE_GPU int fake_gpu_destroy_stream(void* stream) { return fasa::fake().destroy_stream(stream); }
FAKE_GPU int fake_gpu_synchronize(void* stream) { return fasa::fake().synchronize_stream(stream); }
// Copies on `stream` from host memory that may be freed after the call.
FAKE_GPU int fake_gpu_upload(void* to, const void* from, uint64_t bytes, void* stream) {
  return fasa::fake().copy(to, from, bytes, fasa::CopyKind::kHostToDevice, stream);
}
FAKE_GPU void fake_gpu_elsewhere(const void* data, uint64_t bytes) {
  fasa::fake().elsewhere[static_cast<const std::byte*>(data)] = bytes;
}
FAKE_GPU void fake_gpu_foreign_stream(const void* stream) {
  fasa::fake().foreign_streams.insert(stream);
}
// For programs whose tensors are on no GPU: all memory that is not pinned counts as the GPU's, and
// work is done when it is enqueued.
FAKE_GPU void fake_gpu_serve_host_tensors(int on) {
  fasa::fake().strangers_on_device = on != 0;
  fasa::fake().eager = on != 0;
}
FAKE_GPU int64_t fake_gpu_calls(const char* method) { return fasa::fake().calls[method]; }

}  // extern "C"
