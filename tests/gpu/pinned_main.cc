// Runs host tests with all their memory, the stack included, in memory that the GPU accesses at the
// same addresses, so that the CPU kernels' cases run unchanged on GPU kernels. Without a GPU,
// memory comes from the heap and the tests skip themselves.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "tests/support/gpu.h"

namespace {

constexpr size_t kArenaBytes = size_t{1} << 30;
constexpr size_t kStackBytes = size_t{16} << 20;
constexpr size_t kHeader = 64;  // before each block: its size class; blocks are 64-byte aligned

// Allocates power-of-two blocks from one mapping; blocks are never split or merged.
class PinnedHeap {
 public:
  // Returns false if the memory cannot be mapped or registered.
  bool open(fasa::CudaCalls& calls) {
    void* data =
        mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || calls.use_gpu(0) != fasa::cuda_status::kSuccess ||
        calls.register_host(data, kArenaBytes) != fasa::cuda_status::kSuccess) {
      return false;
    }
    begin_ = static_cast<char*>(data);
    next_ = begin_ + kStackBytes;
    return true;
  }
  bool opened() const { return begin_ != nullptr; }
  void* stack() const { return begin_; }
  bool owns(const void* data) const {
    return begin_ != nullptr && data >= begin_ && data < begin_ + kArenaBytes;
  }

  void* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto size_class = static_cast<size_t>(std::bit_width(bytes + kHeader - 1));
    if (Free*& list = free_[size_class]; list != nullptr) {
      Free* const block = list;
      list = block->next;
      return block;
    }
    const size_t length = std::max(size_t{1} << size_class, 2 * kHeader);
    if (next_ + length > begin_ + kArenaBytes) return nullptr;
    *reinterpret_cast<size_t*>(next_) = size_class;
    void* const data = next_ + kHeader;
    next_ += length;
    return data;
  }
  void free(void* data) {
    const std::lock_guard lock(mutex_);
    const size_t size_class = *reinterpret_cast<const size_t*>(static_cast<char*>(data) - kHeader);
    auto* const block = static_cast<Free*>(data);
    block->next = free_[size_class];
    free_[size_class] = block;
  }

 private:
  struct Free {
    Free* next;
  };
  std::mutex mutex_;
  char* begin_ = nullptr;
  char* next_ = nullptr;
  std::array<Free*, 64> free_{};
};

PinnedHeap& heap() {
  static PinnedHeap* const heap = new (std::malloc(sizeof(PinnedHeap))) PinnedHeap;
  return *heap;
}

void* allocate(size_t bytes, size_t alignment) {
  void* const data =
      heap().opened() && alignment <= kHeader ? heap().allocate(bytes)
      : alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void release(void* data) {
  if (data == nullptr) return;
  if (heap().owns(data)) {
    heap().free(data);
  } else {
    std::free(data);
  }
}

void* run_tests(void* result) {
  *static_cast<int*>(result) = RUN_ALL_TESTS();
  return nullptr;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { release(data); }
void operator delete(void* data, size_t) noexcept { release(data); }
void operator delete(void* data, std::align_val_t) noexcept { release(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { release(data); }

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!fasa::gpu_obstacle().empty()) return RUN_ALL_TESTS();
  if (!heap().open(*fasa::cuda_platform().calls)) {
    std::fprintf(stderr, "pinned_main: 1 GiB of host memory could not be pinned\n");
    return 1;
  }
  int result = 1;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, heap().stack(), kStackBytes);
  pthread_t thread{};
  if (pthread_create(&thread, &attributes, run_tests, &result) != 0) return 1;
  pthread_join(thread, nullptr);
  return result;
}
