#include "offload/laned_device.h"

#include "runtime/base/error.h"

namespace fasa {

LanedDevice::Lane& LanedDevice::lane_of(StreamView stream) {
  if (stream.native == nullptr) {
    throw UsageError("the stream is not one of this device's; make it with create_stream");
  }
  return *static_cast<Lane*>(stream.native);
}

LanedDevice::LanedDevice(Device& inner) : WrappedDevice(inner) {
  using Table = ModelKernelTable;
  if (inner.model_kernels() == nullptr) return;
  model_table_ = {.project = pass_model<&Table::project, ProjectParams>,
                  .add_norm = pass_model<&Table::add_norm, AddNormParams>,
                  .angles = pass_model<&Table::angles, AnglesParams>,
                  .heads = pass_model<&Table::heads, HeadsParams>,
                  .activate = pass_model<&Table::activate, ActivateParams>,
                  .add_bias = pass_model<&Table::add_bias, AddBiasParams>,
                  .project_scratch = inner.model_kernels()->project_scratch};
}

Stream LanedDevice::create_stream(StreamPriority priority, std::string_view name) {
  return {this, {kind(), new Lane{*this, inner_.create_stream(priority, name)}}};
}

void LanedDevice::destroy_stream(StreamView stream) noexcept {
  delete static_cast<Lane*>(stream.native);
}

KernelTable LanedDevice::passed_kernels() {
  using Table = KernelTable;
  static_assert(sizeof(Table) == 11 * sizeof(Table::append), "an entry is missing below");
  Table table{};
  table.append = pass<&Table::append, AppendParams>;
  table.write_back = pass<&Table::write_back, WriteBackParams>;
  table.restore = pass<&Table::restore, RestoreParams>;
  table.select = pass<&Table::select, SelectParams>;
  table.resolve = pass<&Table::resolve, ResolveParams>;
  table.speculate = pass<&Table::speculate, SpeculateParams>;
  table.gather = pass<&Table::gather, GatherParams>;
  table.attend = pass<&Table::attend, AttendParams>;
  table.prefill = pass<&Table::prefill, PrefillParams>;
  table.read_rows = pass<&Table::read_rows, ReadRowsParams>;
  // select_scratch: a decorator knows which device's.
  return table;
}

}  // namespace fasa
