#include "kernels/cuda/model/cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {
namespace {

std::string library_name() { return fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR); }

void check(cublasStatus_t status, const char* call, const ProjectParams& params) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(fmt::format(
      "{} failed with status {} for a projection of {} rows from {} to {} columns in {}", call,
      static_cast<int>(status), params.rows, params.inputs, params.columns,
      dtype_name(params.dtype)));
}

// The largest power of two up to 256 that divides all.
uint32_t alignment_of(const void* pointer, int64_t row_bytes) {
  uint32_t alignment = 256;
  const auto bits = reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(row_bytes);
  while (bits % alignment != 0) alignment /= 2;
  return alignment;
}

}  // namespace

// The functions used, looked up by name.
struct CublasLt::Library {
#define FASA_CUBLASLT_FUNCTION(name) decltype(&::name) name = nullptr
  FASA_CUBLASLT_FUNCTION(cublasLtCreate);
  FASA_CUBLASLT_FUNCTION(cublasLtMatmul);
  FASA_CUBLASLT_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  FASA_CUBLASLT_FUNCTION(cublasLtMatmulDescCreate);
  FASA_CUBLASLT_FUNCTION(cublasLtMatmulDescSetAttribute);
  FASA_CUBLASLT_FUNCTION(cublasLtMatrixLayoutCreate);
  FASA_CUBLASLT_FUNCTION(cublasLtMatmulPreferenceCreate);
  FASA_CUBLASLT_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  FASA_CUBLASLT_FUNCTION(cublasLtMatmulPreferenceDestroy);
#undef FASA_CUBLASLT_FUNCTION

  // Returns false if a function is missing.
  bool load(void* opened) {
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, name));
      return function != nullptr;
    };
#define FASA_FIND(name) find(name, #name)
    return FASA_FIND(cublasLtCreate) && FASA_FIND(cublasLtMatmul) &&
           FASA_FIND(cublasLtMatmulAlgoGetHeuristic) && FASA_FIND(cublasLtMatmulDescCreate) &&
           FASA_FIND(cublasLtMatmulDescSetAttribute) && FASA_FIND(cublasLtMatrixLayoutCreate) &&
           FASA_FIND(cublasLtMatmulPreferenceCreate) &&
           FASA_FIND(cublasLtMatmulPreferenceSetAttribute) &&
           FASA_FIND(cublasLtMatmulPreferenceDestroy);
#undef FASA_FIND
  }
};

// Arguments of cublasLtMatmul.
struct CublasLt::Plan {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weights = nullptr;
  cublasLtMatrixLayout_t x = nullptr;
  cublasLtMatrixLayout_t y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

CublasLt::CublasLt(Library* library) : library_(library) {}
CublasLt::~CublasLt() = default;

CublasLt* CublasLt::get() {
  static CublasLt* const made = []() -> CublasLt* {
    const std::string name = library_name();
    void* opened = nullptr;
    for (const std::string& place : {std::string(), std::string("/usr/local/cuda/lib64/")}) {
      if (opened == nullptr) opened = dlopen((place + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    auto library = std::make_unique<Library>();
    if (opened != nullptr && library->load(opened)) return new CublasLt(library.release());
    log_notice(
        fmt::format("{} was not found: prompts use fasa's own projection kernels, which are "
                    "slower; install cuBLAS of CUDA {}, or add its folder to LD_LIBRARY_PATH",
                    name, CUBLAS_VER_MAJOR));
    return nullptr;
  }();
  return made;
}

// In column-major order: y [columns, rows] = weights [inputs, columns]ᵀ x [inputs, rows].
void CublasLt::describe(const ProjectParams& params, Plan& plan) const {
  const Library& lt = *library_;
  const cudaDataType_t type = params.dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
  check(lt.cublasLtMatmulDescCreate(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate", params);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(lt.cublasLtMatmulDescSetAttribute(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof(transposed)),
        "cublasLtMatmulDescSetAttribute", params);
  const auto lay_out = [&](cublasLtMatrixLayout_t& layout, cudaDataType_t of, int64_t rows,
                           int64_t columns, int64_t stride) {
    check(lt.cublasLtMatrixLayoutCreate(&layout, of, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), stride),
          "cublasLtMatrixLayoutCreate", params);
  };
  lay_out(plan.weights, type, params.inputs, params.columns, params.inputs);
  lay_out(plan.x, type, params.inputs, params.rows, params.inputs);
  lay_out(plan.y, CUDA_R_32F, params.columns, params.rows, params.y_stride);
}

void CublasLt::choose(const ProjectParams& params, const Alignments& alignments, Plan& plan) const {
  const Library& lt = *library_;
  cublasLtMatmulPreference_t wish = nullptr;
  check(lt.cublasLtMatmulPreferenceCreate(&wish), "cublasLtMatmulPreferenceCreate", params);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(lt.cublasLtMatmulPreferenceSetAttribute(wish, name, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute", params);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kScratchBytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.weights);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.x);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.y);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.y);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(
      plan.handle, plan.product, plan.weights, plan.x, plan.y, plan.y, wish, 1, &found, &count);
  lt.cublasLtMatmulPreferenceDestroy(wish);
  check(status == CUBLAS_STATUS_SUCCESS && count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status,
        "cublasLtMatmulAlgoGetHeuristic", params);
  plan.algorithm = found.algo;
}

CublasLt::Plan& CublasLt::plan_of(const ProjectParams& params) {
  int gpu = 0;
  cudaGetDevice(&gpu);
  const int64_t row_bytes = params.inputs * dtype_bytes(params.dtype);
  const Alignments alignments = {
      .weights = alignment_of(params.weights, row_bytes),
      .x = alignment_of(params.x, row_bytes),
      .y = alignment_of(params.y, params.y_stride * int64_t{sizeof(float)})};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Plan>& kept =
      plans_[{gpu, params.dtype, params.rows, params.inputs, params.columns, params.y_stride,
              alignments.weights, alignments.x, alignments.y}];
  if (kept != nullptr) return *kept;
  auto plan = std::make_unique<Plan>();
  void*& handle = handles_[gpu];
  if (handle == nullptr) {
    check(library_->cublasLtCreate(reinterpret_cast<cublasLtHandle_t*>(&handle)), "cublasLtCreate",
          params);
  }
  plan->handle = static_cast<cublasLtHandle_t>(handle);
  describe(params, *plan);
  choose(params, alignments, *plan);
  kept = std::move(plan);
  return *kept;
}

void CublasLt::project(const ProjectParams& params, cudaStream_t stream) {
  const Plan& plan = plan_of(params);
  const float one = 1;
  const float zero = 0;
  check(library_->cublasLtMatmul(plan.handle, plan.product, &one, params.weights, plan.weights,
                                 params.x, plan.x, &zero, params.y, plan.y, params.y, plan.y,
                                 &plan.algorithm, params.scratch, kScratchBytes, stream),
        "cublasLtMatmul", params);
}

}  // namespace fasa
