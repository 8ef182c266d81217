// Linked with --wrap for each __wrap_ function here (CMakeLists.txt): calls in the product's
// objects are intercepted, calls inside the standard library's shared object are not.
#include "tests/simulation/process_faults.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <system_error>
#include <thread>

#include "tests/simulation/library_code.h"

extern "C" void* __real_aligned_alloc(size_t alignment, size_t bytes);  // NOLINT: the linker's name

namespace fasa::testing {
namespace {

thread_local FaultInjector* armed = nullptr;
std::atomic<int64_t> live_blocks = 0;

bool fails(FaultPoint point) noexcept { return armed != nullptr && armed->fails(point); }

const LibraryCode* library_code = nullptr;

// `caller`: the calling code's address.
void* allocate(size_t bytes, size_t alignment, const void* caller) {
  if (armed != nullptr && !library_code->has(caller) && fails(FaultPoint::kHeap)) return nullptr;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = alignment <= alignof(max_align_t)
                   ? std::malloc(bytes > 0 ? bytes : 1)
                   : __real_aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
  if (data != nullptr) live_blocks.fetch_add(1, std::memory_order_relaxed);
  return data;
}

void* allocate_or_throw(size_t bytes, size_t alignment, const void* caller) {
  void* data = allocate(bytes, alignment, caller);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void give_back(void* data) noexcept {
  if (data == nullptr) return;
  live_blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(data);
}

constexpr size_t kUsual = alignof(max_align_t);

}  // namespace

ProcessFaults::ProcessFaults(FaultInjector& injector) {
  static const LibraryCode code;
  library_code = &code;
  armed = &injector;
}
ProcessFaults::~ProcessFaults() { armed = nullptr; }
int64_t live_heap_blocks() { return live_blocks.load(std::memory_order_relaxed); }

}  // namespace fasa::testing

using fasa::FaultPoint;
using fasa::testing::allocate;
using fasa::testing::allocate_or_throw;
using fasa::testing::fails;
using fasa::testing::give_back;
using fasa::testing::kUsual;

void* operator new(size_t bytes) {
  return allocate_or_throw(bytes, kUsual, __builtin_return_address(0));
}
void* operator new[](size_t bytes) {
  return allocate_or_throw(bytes, kUsual, __builtin_return_address(0));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kUsual, __builtin_return_address(0));
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kUsual, __builtin_return_address(0));
}
void operator delete(void* data) noexcept { give_back(data); }
void operator delete[](void* data) noexcept { give_back(data); }
void operator delete(void* data, size_t) noexcept { give_back(data); }
void operator delete[](void* data, size_t) noexcept { give_back(data); }
void operator delete(void* data, std::align_val_t) noexcept { give_back(data); }
void operator delete[](void* data, std::align_val_t) noexcept { give_back(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { give_back(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { give_back(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { give_back(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { give_back(data); }

// NOLINTBEGIN(readability-identifier-naming): the linker's names.
extern "C" {

int __real_open(const char* path, int flags, ...);
ssize_t __real_read(int file, void* data, size_t bytes);
ssize_t __real_pread(int file, void* data, size_t bytes, off_t offset);
void* __real_mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset);
void __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* self, void* state, void (*depend)());

int __wrap_open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = va_arg(arguments, int);
  va_end(arguments);
  if (fails(FaultPoint::kFile)) {
    errno = EIO;
    return -1;
  }
  return __real_open(path, flags, mode);
}

ssize_t __wrap_read(int file, void* data, size_t bytes) {
  if (fails(FaultPoint::kFile)) {
    errno = EIO;
    return -1;
  }
  return __real_read(file, data, bytes);
}

ssize_t __wrap_pread(int file, void* data, size_t bytes, off_t offset) {
  if (fails(FaultPoint::kFile)) {
    errno = EIO;
    return -1;
  }
  return __real_pread(file, data, bytes, offset);
}

// Maps a file, or memory as a host memory device takes it.
void* __wrap_mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails((flags & MAP_ANONYMOUS) != 0 ? FaultPoint::kAllocation : FaultPoint::kFile)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return __real_mmap(address, bytes, protection, flags, file, offset);
}

void* __wrap_aligned_alloc(size_t alignment, size_t bytes) {
  if (fails(FaultPoint::kAllocation)) {
    errno = ENOMEM;
    return nullptr;
  }
  return __real_aligned_alloc(alignment, bytes);
}

// The part of std::thread's constructor that is not in the header.
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* self, void* state, void (*depend)()) {
  if (fails(FaultPoint::kThread)) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
  __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
      self, state, depend);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
