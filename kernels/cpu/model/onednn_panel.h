// Panels multiplied by oneDNN.
#pragma once

#include <memory>

#include "kernels/cpu/model/panel_kernel.h"

namespace fasa {

// Returns nullptr if oneDNN has no multiplication of this dtype for this processor.
std::unique_ptr<PanelKernel> make_onednn_panel(const PanelShape& shape);

}  // namespace fasa
