#include "tests/support/ptx/ptx_launcher.h"

#include <cstdlib>
#include <string>

#include "tests/support/ptx/ptx_library.h"

namespace fasa {

int ptx_architecture() {
  static const int chosen = [] {
    const char* const text = std::getenv("FASA_PTX");
    return text != nullptr ? std::atoi(text) : 90;
  }();
  return chosen;
}

PtxExecutor::PtxExecutor(Order order, unsigned seed) {
  options_.falling = order == Order::kFalling;
  options_.seed = order == Order::kRandom ? seed : 0;
  options_.strict = std::getenv("FASA_PTX_STRICT") != nullptr;
}

void PtxLauncher::launch(const std::type_info& kernel, const void* params, size_t param_bytes,
                         const simt::Grid& grid, int threads) const {
  constexpr int kMaxBlocks = 65535;  // of y and z
  const int64_t max_shared = int64_t{compute_capability_ < 80 ? 64 : 99} << 10;
  if (grid.y > kMaxBlocks || grid.z > kMaxBlocks || grid.shared_bytes > max_shared) {
    throw ptx::Error(std::string(kernel.name()) + ": more blocks or shared memory than there are");
  }
  ptx::launch(PtxLibrary::of(compute_capability_, ptx_architecture()).entry(kernel), params,
              param_bytes, {grid.x, grid.y, grid.z}, threads, grid.shared_bytes,
              executor_.options());
}

}  // namespace fasa
