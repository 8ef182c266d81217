// What kernels of the table and copies are called in errors and timelines.
#pragma once

#include "kernels/model_params.h"
#include "kernels/params.h"
#include "offload/device.h"

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
constexpr const char* kernel_name(const ReadRowsParams&) { return "read_rows"; }
constexpr const char* kernel_name(const ProjectParams&) { return "project"; }
constexpr const char* kernel_name(const AddNormParams&) { return "add_norm"; }
constexpr const char* kernel_name(const AnglesParams&) { return "angles"; }
constexpr const char* kernel_name(const HeadsParams&) { return "heads"; }
constexpr const char* kernel_name(const ActivateParams&) { return "activate"; }
constexpr const char* kernel_name(const AddBiasParams&) { return "add_bias"; }

constexpr const char* copy_name(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
      return "copy host to device";
    case CopyKind::kDeviceToHost:
      return "copy device to host";
    case CopyKind::kDeviceToDevice:
      return "copy device to device";
    case CopyKind::kHostToHost:
      return "copy host to host";
  }
  return "copy";
}

}  // namespace fasa
