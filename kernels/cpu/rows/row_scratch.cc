#include "kernels/cpu/rows/row_scratch.h"

#include <cstdlib>
#include <memory>
#include <new>

#include "kernels/layout.h"

namespace fasa::cpu {
namespace {

struct Free {
  void operator()(std::byte* data) const { std::free(data); }
};

}  // namespace

std::byte* thread_scratch(int64_t bytes) {
  thread_local std::unique_ptr<std::byte, Free> block;
  thread_local int64_t capacity = 0;
  if (bytes > capacity) {
    block.reset();
    capacity = 0;
    const int64_t rounded = align_up(bytes, 4096);
    block.reset(
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(rounded))));
    if (block == nullptr) throw std::bad_alloc();
    capacity = rounded;
  }
  return block.get();
}

}  // namespace fasa::cpu
