#include "kernels/cpu/kernels.h"

namespace fasa::cpu {

const KernelTable& kernels() {
  static const KernelTable table = {
      .append = [](const AppendParams& params, StreamView) { append(params); },
      .write_back = [](const WriteBackParams& params, StreamView) { write_back(params); },
      .restore = [](const RestoreParams& params, StreamView) { restore(params); },
      .select = [](const SelectParams& params, StreamView) { select(params); },
      .resolve = [](const ResolveParams& params, StreamView) { resolve(params); },
      .speculate = [](const SpeculateParams& params, StreamView) { speculate(params); },
      .gather = [](const GatherParams& params, StreamView) { gather(params); },
      .attend = [](const AttendParams& params, StreamView) { attend(params); },
      .prefill = [](const PrefillParams& params, StreamView) { prefill(params); },
      .read_rows = [](const ReadRowsParams& params, StreamView) { read_rows(params); },
  };
  return table;
}

}  // namespace fasa::cpu
