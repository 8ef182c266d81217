// fasa.Paged: a KV cache for engines that own page ids.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/core/caller_streams.h"
#include "bindings/python/core/config.h"
#include "bindings/python/core/tensors.h"
#include "runtime/api/pages/table_reader.h"
#include "runtime/fasa.hpp"

namespace fasa::python {

// Range [first, count) of a model's layers or KV heads; none: all.
using Part = std::optional<std::pair<int, int>>;

// The parameters for opening a Paged, which may cover part of a model.
struct PagedOpening {
  PagedOpening(const Geometry& whole, const PyConfig* given, const std::string& row_type,
               const nb::object& fc_map, const nb::object& slice_dims, const Part& layers,
               const Part& kv_heads);

  Config config;
  Geometry geometry;
  std::vector<int16_t> dims;
  RowDType row_dtype;
};

// The sequences of a call, in host or GPU memory: the table of page ids, the valid tokens of each
// sequence and, for prefills, the number of new ones.
struct PagedCall {
  PagedCall(const Device& device, nb::handle block_table, nb::handle seq_lens,
            nb::handle query_lens = {});

  nb::ndarray<const int32_t, nb::ndim<2>> table;
  nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig> lengths;
  std::optional<nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig>> news;
};

// Calls are serialised by a lock and release the GIL.
class PyPaged {
 public:
  PyPaged(const PagedOpening& opening, const PagedShape& shape);

  const Geometry& geometry() const { return geometry_; }
  const PagedShape& shape() const { return paged_->shape(); }
  const Device& device() const { return *device_; }

  void append(int layer, ConstTensorView k, ConstTensorView v, nb::handle slots,
              StreamChoice stream);
  // Without a stream, this and the following calls complete before they return.
  // For the newest token of each sequence, or for the new ones that the call has.
  void attend(int layer, ConstTensorView q, const PagedCall& call, TensorView out, float* lse,
              StreamChoice stream);
  // Copies a step's tables from GPU memory; all calls use them until the next read_tables().
  void read_tables(const nb::list& arrays, StreamChoice stream);
  nb::object read(int64_t page, int layer, int first, std::optional<int> tokens);
  void copy_pages(const std::vector<std::pair<int64_t, int64_t>>& pairs);

  // Calls `action` with the runtime under the lock.
  template <typename Action>
  auto with(const Action& action) {
    const std::lock_guard lock(mutex_);
    return action(*paged_);
  }

 private:
  // A call's tables in host memory.
  struct Sequences {
    BlockTable table;
    std::span<const int32_t> lengths, news;
  };
  Sequences read_sequences(const PagedCall& call, StreamView stream);
  StreamView stream_for(StreamChoice stream);
  // Waits for the call's work, if the device is asynchronous and no stream was given.
  void wait(StreamChoice stream);

  Geometry geometry_;
  std::mutex mutex_;
  std::unique_ptr<Device> device_;
  Stream stream_;
  CallerStreams theirs_;
  TableReader tables_;
  std::unique_ptr<PagedRuntime> paged_;
};

void add_paged(nb::module_& module);

}  // namespace fasa::python
