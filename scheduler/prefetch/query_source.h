// Estimates a later layer's query from an earlier layer's state. Implemented by the model or the
// engine. An estimate decides only what is fetched ahead, never what is attended to.
#pragma once

#include "runtime/base/stream_view.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

class QuerySource {
 public:
  virtual ~QuerySource() = default;

  // Maximum number of layers ahead, at least 1.
  virtual int max_depth() const = 0;

  // Enqueues on `stream`, from the hidden state that enters layer `layer`, the query of layer
  // `layer + ahead`: that layer's norm, query projection and RoPE applied to it. Called between the
  // append and the attend of `layer` in a step whose sequences all decode, 1 <= ahead <=
  // max_depth(), layer + ahead inside the model. Returns [tokens, query_heads, key_dim] in device
  // memory, valid until the next call with the same `ahead`. Enqueues only, allocates nothing.
  virtual ConstTensorView estimate(int layer, int ahead, StreamView stream) = 0;
};

}  // namespace fasa
