#include "kernels/cpu/model/panel_kernel.h"

#include <map>
#include <memory>
#include <mutex>

#include "kernels/cpu/model/loop_panel.h"
#ifndef FASA_TSAN
#include "kernels/cpu/model/onednn_panel.h"
#endif

namespace fasa {
namespace {

std::unique_ptr<PanelKernel> make_kernel(const PanelShape& shape) {
// Debian's oneDNN uses uninstrumented OpenMP, which raises false alarms of the thread sanitizer.
#ifndef FASA_TSAN
  if (shape.order == PanelOrder::kPacked) {
    if (auto kernel = make_onednn_panel(shape)) return kernel;
  }
#endif
  return std::make_unique<LoopPanel>(shape);
}

}  // namespace

const PanelKernel& PanelKernel::get(const PanelShape& shape) {
  static std::mutex mutex;
  static std::map<PanelShape, std::unique_ptr<PanelKernel>> kernels;
  const std::lock_guard lock(mutex);
  std::unique_ptr<PanelKernel>& kernel = kernels[shape];
  if (!kernel) kernel = make_kernel(shape);
  return *kernel;
}

}  // namespace fasa
