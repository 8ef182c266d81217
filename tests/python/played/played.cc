// A played CUDA runtime (tests/support/fake_cuda.h) in place of this build's, inside a copy of the
// Python package's compiled part; and what tests need of one, called through ctypes.
#include <cstdint>
#include <cstring>

#include "offload/cuda/cuda_calls.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

FakeCuda& fake() {
  static auto* const played = new FakeCuda;  // devices may outlive statics
  return *played;
}

}  // namespace

CudaPlatform cuda_platform() { return fake().platform(); }

}  // namespace fasa

#define PLAYED __attribute__((visibility("default")))

extern "C" {

PLAYED void* played_allocate(uint64_t bytes) {
  void* data = nullptr;
  fasa::fake().allocate(&data, bytes, nullptr, nullptr);
  return data;
}
PLAYED void* played_stream() {
  void* stream = nullptr;
  fasa::fake().create_stream(&stream, fasa::StreamPriority::kNormal);
  return stream;
}
PLAYED int played_destroy_stream(void* stream) { return fasa::fake().destroy_stream(stream); }
PLAYED int played_synchronize(void* stream) { return fasa::fake().synchronize_stream(stream); }
// On `stream`, of host memory that may go at once.
PLAYED int played_upload(void* to, const void* from, uint64_t bytes, void* stream) {
  return fasa::fake().copy(to, from, bytes, fasa::CopyKind::kHostToDevice, stream);
}
PLAYED void played_elsewhere(const void* data, uint64_t bytes) {
  fasa::fake().elsewhere[static_cast<const std::byte*>(data)] = bytes;
}
PLAYED void played_foreign_stream(const void* stream) {
  fasa::fake().foreign_streams.insert(stream);
}
// A program whose tensors no GPU holds: all that is not pinned counts as the GPU's, and work is done
// when it is enqueued.
PLAYED void played_serve_host_tensors(int on) {
  fasa::fake().strangers_on_device = on != 0;
  fasa::fake().eager = on != 0;
}
PLAYED int64_t played_calls(const char* method) { return fasa::fake().calls[method]; }

}  // extern "C"
