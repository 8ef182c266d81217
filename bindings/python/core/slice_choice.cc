#include "bindings/python/core/slice_choice.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa::python {
namespace {

using DimsArray = nb::ndarray<const int16_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

std::vector<int16_t> given_dims(const nb::object& object, const Geometry& geometry, int chunks) {
  DimsArray dims;
  if (!nb::try_cast(object, dims)) {
    PyErr_Clear();
    throw UsageError("slice_dims must be a contiguous int16 array [layers, kv_heads, 2 x chunks]");
  }
  if (dims.shape(0) != static_cast<size_t>(geometry.layers) ||
      dims.shape(1) != static_cast<size_t>(geometry.kv_heads) ||
      dims.shape(2) != static_cast<size_t>(2 * chunks)) {
    throw UsageError(fmt::format("slice_dims is [{}, {}, {}]; expected [{}, {}, {}]", dims.shape(0),
                                 dims.shape(1), dims.shape(2), geometry.layers, geometry.kv_heads,
                                 2 * chunks));
  }
  return {dims.data(), dims.data() + dims.size()};
}

}  // namespace

RowDType row_dtype_of(const std::string& name) {
  const auto dtype = parse_row_dtype(name);
  if (!dtype) {
    throw UsageError(fmt::format("row_dtype = \"{}\": allowed: f32, f16, bf16, int8", name));
  }
  return *dtype;
}

std::vector<int16_t> choose_slice_dims(const Config& config, const Geometry& geometry,
                                       const nb::object& fc_map, const nb::object& slice_dims) {
  const int chunks = config.effective_tip_chunks(geometry.chunks());
  if (!slice_dims.is_none()) return given_dims(slice_dims, geometry, chunks);
  std::optional<FcMap> loaded;
  const FcMap* map = nullptr;
  if (!fc_map.is_none()) {
    map = nb::cast<const FcMap*>(fc_map);
  } else if (!config.selection.map.empty()) {
    loaded = FcMap::load(config.selection.map);
    map = &*loaded;
  }
  if (map == nullptr) {
    if (!config.ranks_chunks(geometry.chunks())) return all_slice_dims(geometry);
    throw UsageError(
        fmt::format("slices over {} of {} frequency chunks, {} in int4, need an FC map: give "
                    "fc_map, or set slice = \"default\"",
                    chunks, geometry.chunks(), config.effective_fine_chunks()));
  }
  const size_t heads = map->heads.empty() ? 0 : map->heads.front().size();
  if (map->heads.size() != static_cast<size_t>(geometry.layers) ||
      heads != static_cast<size_t>(geometry.kv_heads)) {
    throw UsageError(fmt::format("the FC map has {} layers of {} KV heads; expected {} of {}",
                                 map->heads.size(), heads, geometry.layers, geometry.kv_heads));
  }
  return map->slice_dims(chunks, config.effective_fine_chunks());
}

}  // namespace fasa::python
