// Memory for predicted queries of later layers. A prediction stays until the next one of its depth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/base/tensor_view.h"
#include "runtime/llm/model_config.h"

namespace fasa {

class QueryEstimates {
 public:
  QueryEstimates() = default;
  // For decode steps of up to `sequences` sequences, 1 to `max_depth` layers ahead. Throws
  // BudgetError.
  QueryEstimates(Device& device, const ModelConfig& config, DType dtype, int64_t sequences,
                 int max_depth)
      : dtype_(dtype),
        heads_(config.query_heads),
        dim_(config.max_head_dim()),
        sequences_(sequences),
        max_depth_(max_depth),
        memory_(device.allocate(MemorySpace::kDevice, static_cast<size_t>(max_depth * one_bytes()),
                                "query estimates")) {}

  int64_t sequences() const { return sequences_; }
  int max_depth() const { return max_depth_; }
  std::byte* data(int ahead) const { return memory_.data() + (ahead - 1) * one_bytes(); }
  // `dim`: of the layer's heads.
  ConstTensorView view(int ahead, int64_t tokens, int dim) const {
    return ConstTensorView::dense(data(ahead), dtype_, tokens, heads_, dim);
  }

 private:
  int64_t one_bytes() const {
    return (sequences_ * heads_ * dim_ * dtype_bytes(dtype_) + 63) / 64 * 64;
  }
  DType dtype_ = DType::kF32;
  int heads_ = 0;
  int dim_ = 0;  // the widest
  int64_t sequences_ = 0;
  int max_depth_ = 0;
  Buffer memory_;
};

}  // namespace fasa
