// Launches kernels (kernels/cuda/simt.h) from nvcc's PTX on the host: the same tests as under the
// interpreter (tests/support/simt_interpreter.h), with the code that nvcc made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <typeinfo>

#include "kernels/cuda/simt.h"
#include "tests/support/ptx/entry.h"

namespace fasa {

// The newest PTX that is executed: FASA_PTX in the environment, 90 if not set.
int ptx_architecture();

// Orders as of SimtInterpreter.
class PtxExecutor {
 public:
  enum class Order { kRising, kFalling, kRandom };
  explicit PtxExecutor(Order order = Order::kRising, unsigned seed = 1);
  const ptx::Options& options() const { return options_; }

 private:
  ptx::Options options_;
};

class PtxLauncher {
 public:
  explicit PtxLauncher(PtxExecutor& executor, int multiprocessors = 2,
                       int compute_capability = ptx_architecture())
      : executor_(executor),
        multiprocessors_(multiprocessors),
        compute_capability_(std::min(compute_capability, ptx_architecture())) {}

  template <typename Kernel>
  void operator()(const Kernel& kernel, const simt::Grid& grid) const {
    if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;
    launch(typeid(Kernel), &kernel, sizeof(Kernel), grid, Kernel::kThreads);
  }
  int multiprocessors() const { return multiprocessors_; }
  int compute_capability() const { return compute_capability_; }  // x 10

 private:
  void launch(const std::type_info& kernel, const void* params, size_t param_bytes,
              const simt::Grid& grid, int threads) const;

  PtxExecutor& executor_;
  int multiprocessors_;
  int compute_capability_;
};

}  // namespace fasa
