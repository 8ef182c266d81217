#include "bindings/python/core/paged.h"

#include <fmt/format.h>

#include <array>

#include "bindings/python/core/engine.h"
#include "bindings/python/core/new_array.h"
#include "bindings/python/core/slice_choice.h"
#include "runtime/base/error.h"
#include "runtime/doors/model_part.h"

namespace fasa::python {
namespace {

// As it lies, or not at all: no call copies a table in silence.
template <typename Array>
Array taken(nb::handle object, const char* name, const char* expected) {
  Array array;
  if (nb::try_cast(object, array, false)) return array;
  PyErr_Clear();
  throw UsageError(fmt::format("{} is no {} in host memory", name, expected));
}

using Lengths = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Slots = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>, nb::device::cpu>;

}  // namespace

PagedOpening::PagedOpening(const Geometry& whole, const PyConfig* given,
                           const std::string& row_type, const nb::object& fc_map,
                           const nb::object& slice_dims, const Part& layers, const Part& kv_heads) {
  whole.validate();
  const Config settings = given == nullptr ? Config() : given->config();
  settings.validate_for(whole);
  row_dtype = settings.placement.row_dtype.value_or(row_dtype_of(row_type));
  const auto [first_layer, layer_count] = layers.value_or(std::pair(0, 0));
  const auto [first_head, head_count] = kv_heads.value_or(std::pair(0, 0));
  ModelPart part =
      part_of_model(settings, whole, choose_slice_dims(settings, whole, fc_map, slice_dims),
                    {first_layer, layer_count}, {first_head, head_count});
  config = std::move(part.config);
  geometry = std::move(part.geometry);
  dims = std::move(part.slice_dims);
}

PagedCall::PagedCall(nb::handle block_table, nb::handle seq_lens)
    : table(taken<Table>(block_table, "block_table", "int32 array [sequences, columns]")),
      lengths(taken<Lengths>(seq_lens, "seq_lens", "contiguous int32 array [sequences]")) {
  if (table.shape(1) > 1 && table.stride(1) != 1) {
    throw UsageError("block_table has gaps in its rows; expected stride 1 there");
  }
}

BlockTable PagedCall::block_table() const {
  return {table.data(), static_cast<int64_t>(table.shape(0)), static_cast<int64_t>(table.shape(1)),
          table.stride(0)};
}

PyPaged::PyPaged(const PagedOpening& opening, const PagedShape& shape)
    : geometry_(opening.geometry),
      device_(open_host_device(opening.config)),
      stream_(device_->create_stream(StreamPriority::kNormal, "compute")),
      paged_(std::make_unique<PagedRuntime>(*device_, opening.config, opening.geometry,
                                            opening.row_dtype, opening.dims, shape)) {}

void PyPaged::wait() {
  if (!device_->unified()) device_->synchronize(stream_.view());
}

void PyPaged::append(int layer, ConstTensorView k, ConstTensorView v, nb::handle slots) {
  const auto mapping = taken<Slots>(slots, "slots", "contiguous int64 array [tokens]");
  const std::span<const int64_t> all(mapping.data(), mapping.size());
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  paged_->append(layer, k, v, all, stream_.view());
  wait();
}

void PyPaged::attend(int layer, ConstTensorView q, const PagedCall& call, TensorView out,
                     float* lse) {
  const BlockTable table = call.block_table();
  const std::span<const int32_t> lengths = call.seq_lens();
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  paged_->attend(layer, q, table, lengths, out, lse, stream_.view());
  wait();
}

void PyPaged::prefill(int layer, ConstTensorView q, const PagedCall& call, nb::handle query_lens,
                      TensorView out, float* lse) {
  const auto news = taken<Lengths>(query_lens, "query_lens", "contiguous int32 array [sequences]");
  const BlockTable table = call.block_table();
  const std::span<const int32_t> lengths = call.seq_lens();
  const std::span<const int32_t> queries(news.data(), news.size());
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  paged_->prefill(layer, q, table, lengths, queries, out, lse, stream_.view());
  wait();
}

nb::object PyPaged::read(int64_t page, int layer, int first, std::optional<int> tokens) {
  const int count = tokens.value_or(
      with([&](const PagedRuntime& paged) { return paged.held(page, layer); }) - first);
  if (first < 0 || count < 0) {
    throw UsageError(fmt::format("read of {} tokens from {}; allowed: 0 or more", count, first));
  }
  const auto shape_of = [&](int dim) {
    return std::array{static_cast<size_t>(count), static_cast<size_t>(geometry_.kv_heads),
                      static_cast<size_t>(dim)};
  };
  const auto view = [&](float* data, int dim) {
    return TensorView::dense(data, DType::kF32, count, geometry_.kv_heads, dim);
  };
  float* keys = nullptr;
  float* values = nullptr;
  const nb::object k = new_array(keys, shape_of(geometry_.key_dim));
  const nb::object v = new_array(values, shape_of(geometry_.value_dim));
  {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    paged_->read(page, layer, first, view(keys, geometry_.key_dim),
                 view(values, geometry_.value_dim), stream_.view());
    wait();
  }
  return nb::make_tuple(k, v);
}

void PyPaged::copy_pages(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  std::vector<PageCopy> copies;
  for (const auto& [source, destination] : pairs) copies.push_back({source, destination});
  const nb::gil_scoped_release release;
  with([&](PagedRuntime& paged) { paged.copy_pages(copies); });
}

}  // namespace fasa::python
