// Panels multiplied by a plain loop, for processors and dtypes that oneDNN does not support.
#pragma once

#include "kernels/cpu/model/panel_kernel.h"

namespace fasa {

class LoopPanel : public PanelKernel {
 public:
  explicit LoopPanel(const PanelShape& shape) : shape_(shape) {}
  size_t packed_bytes() const override;
  void pack(const void* plain, void* packed) const override;
  void pack_by_input(const void* plain, int64_t stride, void* packed) const override;
  void run(int64_t rows, const void* x, const void* packed, float* y) const override;
  const char* name() const override { return "loop"; }

 private:
  PanelShape shape_;
};

}  // namespace fasa
