#include "bindings/python/core/module_parts.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/python/core/config.h"
#include "bindings/python/core/engine.h"
#include "bindings/python/core/results.h"
#include "bindings/python/core/tensors.h"
#include "offload/open_host_device.h"
#include "runtime/api/stateless/sparse_decode.h"
#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa::python {
namespace {

// The entries of a batch, each [heads, tokens, dim] with equal strides, as one view [batch, heads,
// tokens, dim].
struct Batch {
  std::vector<BorrowedTensor> entries;
  BatchTensorView view;
};

Batch batch_from(const Device& device, nb::handle object, const char* name) {
  Batch batch;
  if (!nb::hasattr(object, "shape") || nb::len(nb::handle(object.attr("shape"))) != 4) {
    throw UsageError(fmt::format("{} must be a tensor [batch, heads, tokens, dim]", name));
  }
  const auto count = static_cast<int64_t>(nb::len(object));
  if (count == 0) throw UsageError(fmt::format("{} is empty", name));
  for (int64_t i = 0; i < count; ++i) {
    batch.entries.push_back(BorrowedTensor::from(device, object[nb::int_(i)], name, false));
  }
  const TensorView first = batch.entries.front().view();  // [heads, tokens, dim]
  const auto address = [&](int64_t i) {
    return static_cast<const std::byte*>(batch.entries[static_cast<size_t>(i)].view().data);
  };
  const int64_t stride =
      count > 1 ? (address(1) - address(0)) / dtype_bytes(first.dtype) : first.token_stride;
  batch.view = {.data = first.data,
                .dtype = first.dtype,
                .batch = count,
                .heads = first.tokens,
                .tokens = first.heads,
                .dim = first.dim,
                .batch_stride = stride,
                .head_stride = first.token_stride,
                .token_stride = first.head_stride};
  return batch;
}

nb::object decode(nb::handle q, nb::handle k, nb::handle v, const Geometry& geometry,
                  const PyConfig* config, const FcMap* map, int layer,
                  const std::optional<std::vector<int64_t>>& lengths) {
  const Config settings = config == nullptr ? Config() : config->config();
  const auto device = open_host_device(settings.device_options());
  const BorrowedTensor query = BorrowedTensor::from(*device, q, "q", false);
  const Batch keys = batch_from(*device, k, "k");
  const Batch values = batch_from(*device, v, "v");
  const std::vector<int16_t> dims = configured_slice_dims(settings, geometry, map);
  const auto rows = static_cast<size_t>(keys.view.batch);
  const auto heads = static_cast<size_t>(geometry.query_heads);
  float* data = nullptr;
  nb::object out =
      new_array(data, std::array{rows, heads, static_cast<size_t>(geometry.value_dim)});
  SparseDecode call{.layer = layer,
                    .q = query.const_view(),
                    .k = keys.view,
                    .v = values.view,
                    .out = TensorView::dense(data, DType::kF32, keys.view.batch,
                                             geometry.query_heads, geometry.value_dim)};
  if (lengths) call.lengths = *lengths;
  {
    const nb::gil_scoped_release release;
    const Stream stream = device->create_stream(StreamPriority::kNormal, "compute");
    sparse_decode(*device, settings, geometry,
                  settings.placement.row_dtype.value_or(keys.view.dtype), dims, call,
                  stream.view());
  }
  return out;
}

}  // namespace

void add_stateless(nb::module_& module) {
  module.def("sparse_decode", decode, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
             nb::arg("geometry"), nb::arg("config").none() = nb::none(), nb::kw_only(),
             nb::arg("fc_map").none() = nb::none(), nb::arg("layer") = 0,
             nb::arg("lengths") = nb::none(),
             "Attention of one decode step over plain tensors: q [batch, query_heads, head_dim] of "
             "the newest tokens, and k and v [batch, kv_heads, tokens, dim] including them; q and "
             "k are rotated. Returns float32 [batch, query_heads, value_dim]. No cache is kept: "
             "every call indexes the keys again.");
}

}  // namespace fasa::python
