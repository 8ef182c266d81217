// What the kernels of the table are called in errors and timelines.
#pragma once

#include "kernels/params.h"

namespace fasa {

constexpr const char* kernel_name(const AppendParams&) { return "append"; }
constexpr const char* kernel_name(const WriteBackParams&) { return "write_back"; }
constexpr const char* kernel_name(const RestoreParams&) { return "restore"; }
constexpr const char* kernel_name(const SelectParams&) { return "select"; }
constexpr const char* kernel_name(const ResolveParams&) { return "resolve"; }
constexpr const char* kernel_name(const SpeculateParams&) { return "speculate"; }
constexpr const char* kernel_name(const GatherParams&) { return "gather"; }
constexpr const char* kernel_name(const AttendParams&) { return "attend"; }
constexpr const char* kernel_name(const PrefillParams&) { return "prefill"; }

}  // namespace fasa
