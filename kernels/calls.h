// All kernels that a device can run, each as a value. A device enqueues a call in stream order,
// without allocating or waiting.
//
// A new kernel needs its parameters (params.h, model_params.h, packed_params.h, expert_params.h,
// linear_params.h), an entry here and a body for each backend: cpu::run (kernels/cpu/kernels.h) and
// cuda::launch (kernels/cuda/kernels.h).
#pragma once

#include <type_traits>
#include <variant>

#include "kernels/expert_params.h"
#include "kernels/linear_params.h"
#include "kernels/model_params.h"
#include "kernels/packed_params.h"
#include "kernels/params.h"

namespace fasa {

template <typename... Params>
struct CallList {
  using Call = std::variant<Params...>;
  template <typename Candidate>
  static constexpr bool kHas = (std::is_same_v<Candidate, Params> || ...);
  template <typename... More>
  static CallList<Params..., More...> with(CallList<More...>);
};

// Kernels of the cache, which all devices have.
using CacheCalls =
    CallList<AppendParams, WriteBackParams, RestoreParams, SelectParams, ResolveParams, FetchParams,
             ClaimSlotsParams, GatherParams, AttendParams, PrefillParams, ReadRowsParams>;
// Kernels of a model's own work: the calls per token, and its products. Devices with
// DeviceTraits::model_calls have them. On other devices host code runs the calls per token by
// cpu::run_on_rows (kernels/cpu/model/row_calls.h), products by panels of weights, and layers of
// experts by ExpertWork.
using RowCalls = CallList<AddNormParams, AnglesParams, HeadsParams, ActivateParams, AddBiasParams,
                          TakeSinksParams>;
using ProductCalls = CallList<ProjectParams, ProjectPackedParams, UnpackParams>;
using ExpertCalls = CallList<ChooseExpertsParams, ArrangeExpertsParams, ProjectExpertsParams,
                             ProjectPackedExpertsParams, MixExpertsParams>;
// Layers with linear attention; on other devices host code runs them by cpu::run_linear.
using LinearCalls = CallList<ConvolveParams, DeltaNetParams, GateParams>;
using LinearCall = LinearCalls::Call;
using ModelCalls = decltype(ProductCalls::with(RowCalls::with(LinearCalls::with(ExpertCalls()))));
using KernelCall = decltype(CacheCalls::with(ModelCalls()))::Call;

// The kernel's name in errors and timelines.
inline const char* kernel_name(const KernelCall& call) {
  return std::visit([](const auto& params) { return params.kName; }, call);
}

}  // namespace fasa
