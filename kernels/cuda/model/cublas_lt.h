// Projections by cuBLASLt, in builds with FASA_CUDA. The library, which is larger than everything
// else together, is loaded when the first model asks for it: programs start, and models run,
// without it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "kernels/model_params.h"

namespace fasa {

class CublasLt {
 public:
  static constexpr uint64_t kScratchBytes = kCublasScratchBytes;

  // Returns null, with one notice, if the library is not found.
  static CublasLt* get();
  // Enqueues on a stream of the current GPU. Throws DeviceError if the library refuses.
  void project(const ProjectParams& params, cudaStream_t stream);

 private:
  struct Library;
  struct Plan;  // algorithm and layouts for one shape on one GPU
  struct Alignments {
    uint32_t weights, x, y;  // alignment of all their rows, bytes
  };
  using Key =
      std::tuple<int, DType, int64_t, int64_t, int64_t, int64_t, uint32_t, uint32_t, uint32_t>;
  explicit CublasLt(Library* library);
  ~CublasLt();
  Plan& plan_of(const ProjectParams& params);
  void describe(const ProjectParams& params, Plan& plan) const;
  void choose(const ProjectParams& params, const Alignments& alignments, Plan& plan) const;

  Library* const library_;  // kept until the process ends, as are all members below
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::map<int, void*> handles_;  // of each GPU
};

}  // namespace fasa
