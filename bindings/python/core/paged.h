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

// [first, count) of a model's layers or KV heads; none: all.
using Part = std::optional<std::pair<int, int>>;

// What a Paged opens with, part of a model that it is.
struct PagedOpening {
  PagedOpening(const Geometry& whole, const PyConfig* given, const std::string& row_type,
               const nb::object& fc_map, const nb::object& slice_dims, const Part& layers,
               const Part& kv_heads);

  Config config;
  Geometry geometry;
  std::vector<int16_t> dims;
  RowDType row_dtype;
};

// Sequences of a call: a table of page ids, the valid tokens of each and, for prefills, the number
// of new ones. In host memory or a GPU's.
struct PagedCall {
  PagedCall(const Device& device, nb::handle block_table, nb::handle seq_lens,
            nb::handle query_lens = {});

  nb::ndarray<const int32_t, nb::ndim<2>> table;
  nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig> lengths;
  std::optional<nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig>> news;
};

// One call at a time, under a lock, while Python's other threads run on.
class PyPaged {
 public:
  PyPaged(const PagedOpening& opening, const PagedShape& shape);

  const Geometry& geometry() const { return geometry_; }
  const PagedShape& shape() const { return paged_->shape(); }
  const Device& device() const { return *device_; }

  void append(int layer, ConstTensorView k, ConstTensorView v, nb::handle slots,
              StreamChoice stream);
  // Done on return without a stream, as all calls that follow.
  void attend(int layer, ConstTensorView q, const PagedCall& call, TensorView out, float* lse,
              StreamChoice stream);
  void prefill(int layer, ConstTensorView q, const PagedCall& call, TensorView out, float* lse,
               StreamChoice stream);
  // Tables of a step in GPU memory, used by all calls until this is called again.
  void read_tables(const nb::list& arrays, StreamChoice stream);
  nb::object read(int64_t page, int layer, int first, std::optional<int> tokens);
  void copy_pages(const std::vector<std::pair<int64_t, int64_t>>& pairs);

  // `action` with the runtime, alone.
  template <typename Action>
  auto with(const Action& action) {
    const std::lock_guard lock(mutex_);
    return action(*paged_);
  }

 private:
  // What a call says of its sequences, as host code reads it.
  struct Sequences {
    BlockTable table;
    std::span<const int32_t> lengths, news;
  };
  Sequences read_sequences(const PagedCall& call, StreamView stream);
  StreamView stream_for(StreamChoice stream);
  // Where the device works behind the caller's back.
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
