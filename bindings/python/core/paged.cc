#include "bindings/python/core/paged.h"

#include <fmt/format.h>

#include <array>

#include "bindings/python/core/engine.h"
#include "bindings/python/core/results.h"
#include "bindings/python/core/slice_choice.h"
#include "runtime/api/caller_memory.h"
#include "runtime/api/model_part.h"
#include "runtime/base/error.h"

namespace fasa::python {
namespace {

// Takes the array without a copy, or throws: no call copies a table silently.
template <typename Array>
Array taken(const Device& device, nb::handle object, const char* name, const char* expected) {
  Array array;
  const bool cast = nb::try_cast(object, array, false);
  if (!cast) PyErr_Clear();
  const bool on_host = cast && array.device_type() == nb::device::cpu::value;
  if (cast && (on_host || !takes_host_memory(device))) return array;
  throw UsageError(
      fmt::format("{} has the wrong type, shape or location; expected: {} in host memory{}", name,
                  expected, takes_host_memory(device) ? "" : " or " + device.name() + "'s"));
}

using Lengths = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig>;
using Slots = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>>;

template <typename Array>
CallerArray array_of(const char* name, const Array& array) {
  const size_t element = array.itemsize();
  return {name, array.data(), array.size() * element, element};
}

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

PagedCall::PagedCall(const Device& device, nb::handle block_table, nb::handle seq_lens,
                     nb::handle query_lens)
    : table(taken<Table>(device, block_table, "block_table", "int32 array [sequences, columns]")),
      lengths(taken<Lengths>(device, seq_lens, "seq_lens", "contiguous int32 array [sequences]")) {
  if (table.shape(1) > 1 && table.stride(1) != 1) {
    throw UsageError("block_table has stride other than 1 in its last dimension; expected 1");
  }
  if (!query_lens.is_valid()) return;
  news = taken<Lengths>(device, query_lens, "query_lens", "contiguous int32 array [sequences]");
}

PyPaged::PyPaged(const PagedOpening& opening, const PagedShape& shape)
    : geometry_(opening.geometry),
      device_(open_tensor_device(opening.config)),
      stream_(device_->create_stream(StreamPriority::kNormal, "compute")),
      theirs_(*device_),
      tables_(*device_),
      paged_(std::make_unique<PagedRuntime>(*device_, opening.config, opening.geometry,
                                            opening.row_dtype, opening.dims, shape)) {}

StreamView PyPaged::stream_for(StreamChoice stream) {
  return stream ? theirs_.of(*stream) : stream_.view();
}

void PyPaged::wait(StreamChoice stream) {
  if (!stream && !device_->unified()) device_->synchronize(stream_.view());
}

PyPaged::Sequences PyPaged::read_sequences(const PagedCall& call, StreamView stream) {
  Sequences read;
  read.table = {call.table.data(), static_cast<int64_t>(call.table.shape(0)),
                static_cast<int64_t>(call.table.shape(1)), call.table.stride(0)};
  std::array<CallerArray, 3> arrays = {
      CallerArray{"block_table", read.table.pages,
                  table_entries(*device_, read.table) * sizeof(int32_t), alignof(int32_t)},
      array_of("seq_lens", call.lengths), CallerArray{"query_lens", nullptr, 0, alignof(int32_t)}};
  if (call.news) arrays[2] = array_of("query_lens", *call.news);
  tables_.read(arrays, stream);
  const auto lengths = [](const CallerArray& array) {
    return std::span(static_cast<const int32_t*>(array.data), array.bytes / sizeof(int32_t));
  };
  read.table.pages = static_cast<const int32_t*>(arrays[0].data);
  read.lengths = lengths(arrays[1]);
  read.news = lengths(arrays[2]);
  return read;
}

void PyPaged::append(int layer, ConstTensorView k, ConstTensorView v, nb::handle slots,
                     StreamChoice stream) {
  const auto mapping = taken<Slots>(*device_, slots, "slots", "contiguous int64 array [tokens]");
  CallerArray array = array_of("slots", mapping);
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  require_reachable(*device_, "k", k);
  require_reachable(*device_, "v", v);
  const StreamView on = stream_for(stream);
  tables_.read({&array, 1}, on);
  const std::span all(static_cast<const int64_t*>(array.data), mapping.size());
  paged_->append(layer, k, v, all, on);
  wait(stream);
}

void PyPaged::attend(int layer, ConstTensorView q, const PagedCall& call, TensorView out,
                     float* lse, StreamChoice stream) {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  require_reachable(*device_, "q", q);
  require_reachable(*device_, "out", out);
  const StreamView on = stream_for(stream);
  const Sequences of = read_sequences(call, on);
  if (call.news) {
    paged_->prefill(layer, q, of.table, of.lengths, of.news, out, lse, on);
  } else {
    paged_->attend(layer, q, of.table, of.lengths, out, lse, on);
  }
  wait(stream);
}

void PyPaged::read_tables(const nb::list& arrays, StreamChoice stream) {
  using Any = nb::ndarray<nb::ro, nb::c_contig>;
  std::vector<Any> kept;
  std::vector<MemoryRange> ranges;
  for (nb::handle one : arrays) {
    kept.push_back(taken<Any>(*device_, one, "an array", "contiguous array"));
    ranges.push_back({kept.back().data(), kept.back().nbytes()});
  }
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  tables_.take(ranges, stream_for(stream));
}

nb::object PyPaged::read(int64_t page, int layer, int first, std::optional<int> tokens) {
  const int count = tokens.value_or(
      with([&](const PagedRuntime& paged) { return paged.held(page, layer); }) - first);
  return rows_read(*device_, geometry_, first, count,
                   [&](const TensorView& k, const TensorView& v) {
                     const std::lock_guard lock(mutex_);
                     paged_->read(page, layer, first, k, v, stream_.view());
                     wait({});
                   });
}

void PyPaged::copy_pages(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  std::vector<PageCopy> copies;
  for (const auto& [source, destination] : pairs) copies.push_back({source, destination});
  const nb::gil_scoped_release release;
  with([&](PagedRuntime& paged) { paged.copy_pages(copies); });
}

}  // namespace fasa::python
