// The whole vocabulary of a device: every kernel that it can be asked for, as a value. A device
// enqueues a call in stream order; it allocates nothing for it and waits for nothing.
//
// A new kernel is its parameters (params.h, model_params.h, packed_params.h, expert_params.h), an entry here and a body for each
// backend: cpu::run (kernels/cpu/kernels.h) and cuda::launch (kernels/cuda/kernels.h).
#pragma once

#include <type_traits>
#include <variant>

#include "kernels/expert_params.h"
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

// Of the cache: all devices have them.
using CacheCalls =
    CallList<AppendParams, WriteBackParams, RestoreParams, SelectParams, ResolveParams, FetchParams,
             ClaimSlotsParams, GatherParams, AttendParams, PrefillParams, ReadRowsParams>;
// Of a model's own work, the calls that go token by token, and its products. Devices with
// DeviceTraits::model_calls have them; for the others host code does the former as
// cpu::run_on_rows (kernels/cpu/model/row_calls.h) and the latter from weights in panels, layers of
// experts by ExpertWork.
using RowCalls = CallList<AddNormParams, AnglesParams, HeadsParams, ActivateParams, AddBiasParams,
                          TakeSinksParams>;
using ProductCalls = CallList<ProjectParams, ProjectPackedParams, UnpackParams>;
using ExpertCalls = CallList<ChooseExpertsParams, ArrangeExpertsParams, ProjectExpertsParams,
                             ProjectPackedExpertsParams, MixExpertsParams>;
using ModelCalls = decltype(ProductCalls::with(RowCalls::with(ExpertCalls())));
using KernelCall = decltype(CacheCalls::with(ModelCalls()))::Call;

// As errors and timelines say it.
inline const char* kernel_name(const KernelCall& call) {
  return std::visit([](const auto& params) { return params.kName; }, call);
}

}  // namespace fasa
