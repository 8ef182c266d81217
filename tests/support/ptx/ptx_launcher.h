// Launches kernels (kernels/cuda/simt.h) from nvcc's PTX on the host: the same tests as under the
// interpreter (tests/support/simt_interpreter.h), with the code that nvcc made.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "kernels/cuda/simt.h"
#include "tests/support/ptx/module.h"

namespace fasa {

// The kernels of a folder of PTX files, by the type of their only parameter.
class PtxLibrary {
 public:
  explicit PtxLibrary(const std::string& folder);
  // The build's PTX for a compute capability x 10: that of 9.0, or of 7.5 below 8.0.
  static PtxLibrary& of(int compute_capability);

  // Throws ptx::Error if there is no PTX of the kernel.
  const ptx::Entry& entry(const std::type_info& kernel);

 private:
  std::vector<std::unique_ptr<ptx::Module>> modules_;
  std::map<std::string, std::pair<ptx::Module*, std::string>> entries_;  // by type
};

// Orders as of SimtInterpreter.
class PtxExecutor {
 public:
  enum class Order { kRising, kFalling, kRandom };
  explicit PtxExecutor(Order order = Order::kRising, unsigned seed = 1) {
    options_.falling = order == Order::kFalling;
    options_.seed = order == Order::kRandom ? seed : 0;
  }
  const ptx::Options& options() const { return options_; }

 private:
  ptx::Options options_;
};

class PtxLauncher {
 public:
  explicit PtxLauncher(PtxExecutor& executor, int multiprocessors = 2, int compute_capability = 90)
      : executor_(executor),
        multiprocessors_(multiprocessors),
        compute_capability_(compute_capability) {}

  template <typename Kernel>
  void operator()(const Kernel& kernel, const simt::Grid& grid) const {
    if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;
    const ptx::Entry& entry = PtxLibrary::of(compute_capability_).entry(typeid(Kernel));
    ptx::launch(entry, &kernel, sizeof(Kernel), {grid.x, grid.y, grid.z}, Kernel::kThreads,
                grid.shared_bytes, executor_.options());
  }
  int multiprocessors() const { return multiprocessors_; }
  int compute_capability() const { return compute_capability_; }  // x 10

 private:
  PtxExecutor& executor_;
  int multiprocessors_;
  int compute_capability_;
};

}  // namespace fasa
