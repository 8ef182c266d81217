#include "kernels/host_rows.h"

#include "kernels/cpu/rows/row_bodies.h"

namespace fasa {

ExpandRow expand_row(RowDType dtype) { return cpu::row_bodies(cpu::active_target()).expand[dtype]; }

}  // namespace fasa
