#include "bindings/python/core/module_parts.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/calibrate/calibrate_ranking.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa::python {
namespace {

namespace nb = nanobind;
using Keys = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Queries = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using SliceDims = nb::ndarray<nb::numpy, int16_t, nb::ndim<3>>;

// [layers][kv_heads][2 x chunks].
SliceDims slice_dims(const FcMap& map, int chunks, int fine_chunks) {
  auto* dims = new std::vector<int16_t>(map.slice_dims(chunks, fine_chunks));
  const nb::capsule owner(
      dims, [](void* data) noexcept { delete static_cast<std::vector<int16_t>*>(data); });
  const size_t heads = map.heads.empty() ? 0 : map.heads.front().size();
  return SliceDims(dims->data(), {map.heads.size(), heads, static_cast<size_t>(2 * chunks)}, owner);
}

HeadSamples samples_of(const Keys& keys, const Queries& queries,
                       const std::vector<int32_t>& positions,
                       const std::vector<std::pair<int, int>>& chunks, float scale,
                       float score_cap) {
  HeadSamples samples;
  samples.tokens = static_cast<int64_t>(keys.shape(0));
  samples.key_dim = static_cast<int>(keys.shape(1));
  samples.gqa_group = static_cast<int>(queries.shape(1));
  samples.scale = scale;
  samples.score_cap = score_cap / scale;
  samples.positions = positions;
  const bool inside = std::all_of(positions.begin(), positions.end(), [&](int32_t position) {
    return position >= 0 && position < samples.tokens;
  });
  if (queries.shape(0) != positions.size() || queries.shape(2) != keys.shape(1) || !inside) {
    throw UsageError(fmt::format(
        "rank_chunks: queries have shape [{}, {}, {}], with {} positions, and keys [{}, {}]; "
        "expected queries [positions, group, key_dim] at positions within the keys",
        queries.shape(0), queries.shape(1), queries.shape(2), positions.size(), keys.shape(0),
        keys.shape(1)));
  }
  for (const auto& [first, second] : chunks) {
    if (std::min(first, second) < 0 || std::max(first, second) >= samples.key_dim) {
      throw UsageError(
          fmt::format("rank_chunks: chunk ({}, {}); allowed: dimensions 0 to {}, those of a key",
                      first, second, samples.key_dim - 1));
    }
    samples.chunks.push_back({first, second});
  }
  samples.queries.assign(queries.data(), queries.data() + queries.size());
  samples.keys.resize(keys.size());
  for (size_t token = 0; token < keys.shape(0); ++token) {
    for (size_t dim = 0; dim < keys.shape(1); ++dim) {
      samples.keys[dim * keys.shape(0) + token] = keys.data()[token * keys.shape(1) + dim];
    }
  }
  return samples;
}

HeadRanking rank(const Keys& keys, const Queries& queries, const std::vector<int32_t>& positions,
                 const std::vector<std::pair<int, int>>& chunks, float scale,
                 const std::string& objective, int window, int sinks, int recent, float score_cap) {
  const RankingOptions options{
      .objective = parse_objective(objective), .window = window, .sinks = sinks, .recent = recent};
  if (sinks < 0 || recent < 1 || window <= sinks + recent) {
    throw UsageError(
        fmt::format("rank_chunks: window = {}, sinks = {}, recent = {}; allowed: recent of 1 or "
                    "more, window above sinks + recent",
                    window, sinks, recent));
  }
  const HeadSamples samples = samples_of(keys, queries, positions, chunks, scale, score_cap);
  const nb::gil_scoped_release release;
  return rank_chunks(samples, options);
}

void add_fingerprint(nb::module_& module) {
  nb::class_<ModelFingerprint>(module, "ModelFingerprint",
                               "The properties of a model that an FC map must match.")
      .def(nb::init<>())
      .def_rw("model_type", &ModelFingerprint::model_type)
      .def_rw("layers", &ModelFingerprint::layers)
      .def_rw("kv_heads", &ModelFingerprint::kv_heads)
      .def_rw("query_heads", &ModelFingerprint::query_heads)
      .def_rw("key_dim", &ModelFingerprint::key_dim)
      .def_rw("value_dim", &ModelFingerprint::value_dim)
      .def_rw("rotary_dims", &ModelFingerprint::rotary_dims)
      .def_rw("rotary_layout", &ModelFingerprint::rotary_layout)
      .def_rw("rope_theta", &ModelFingerprint::rope_theta)
      .def_rw("rope_scaling", &ModelFingerprint::rope_scaling)
      .def_rw("key_rows", &ModelFingerprint::key_rows)
      .def("__eq__", [](const ModelFingerprint& self, const ModelFingerprint& other) {
        return self == other;
      });
}

void add_ranking(nb::module_& module) {
  nb::class_<HeadRanking>(module, "HeadRanking", "The order of one KV head's frequency chunks.")
      .def_ro("chunks", &HeadRanking::chunks, "Dimensions of each chunk, best first.")
      .def_ro("agreement", &HeadRanking::agreement, "Mean contextual agreement of each chunk.")
      .def_ro("distant_attention_kept", &HeadRanking::distant_attention_kept,
              "Share of the oracle's distant attention kept by the first 1, 2, ... chunks.");
  module.def(
      "rank_chunks", rank, nb::arg("keys"), nb::arg("queries"), nb::arg("positions"),
      nb::arg("chunks"), nb::kw_only(), nb::arg("scale"),
      nb::arg("objective") = "distant_attention", nb::arg("window") = 256, nb::arg("sinks") = 4,
      nb::arg("recent") = 16, nb::arg("score_cap") = 0.0f,
      "Ranks the chunks of one KV head: keys [tokens, key_dim] and queries [positions, group, "
      "key_dim], both rotated, float32.");
}

}  // namespace

void add_fc_map(nb::module_& module) {
  add_fingerprint(module);
  add_ranking(module);
  nb::class_<FcMap>(module, "FcMap",
                    "Which frequency chunks a slice takes, for every layer and KV head of a model.")
      .def(nb::init<>())
      .def_static("load", &FcMap::load, nb::arg("path"))
      .def_static(
          "from_json", [](const std::string& text) { return FcMap::parse(text, "map"); },
          nb::arg("text"))
      .def("save", &FcMap::save, nb::arg("path"), "Writes the file atomically.")
      .def("to_json", &FcMap::to_json)
      .def("slice_dims", slice_dims, nb::arg("chunks"), nb::arg("fine_chunks") = 0,
           "The key dimensions of every head's first chunks, [layers, kv_heads, 2 x chunks]; those "
           "for fine_chunks first.")
      .def("require_fits",
           nb::overload_cast<const ModelFingerprint&, const std::string&>(&FcMap::require_fits,
                                                                          nb::const_),
           nb::arg("model"), nb::arg("path"),
           "Raises InputError, which names the first field that differs.")
      .def_rw("objective", &FcMap::objective)
      .def_rw("data_hash", &FcMap::data_hash)
      .def_rw("sinks", &FcMap::sinks)
      .def_rw("recent", &FcMap::recent)
      .def_rw("window", &FcMap::window)
      .def_rw("tokens", &FcMap::tokens)
      .def_rw("queries", &FcMap::queries)
      .def_rw("probes", &FcMap::probes)
      .def_rw("fingerprint", &FcMap::fingerprint)
      .def_rw("heads", &FcMap::heads, "[layers][kv_heads]")
      .def("__eq__", [](const FcMap& self, const FcMap& other) { return self == other; })
      .def("__repr__", [](const FcMap& map) {
        return fmt::format("fasa.FcMap(model_type={:?}, layers={}, kv_heads={}, objective={:?})",
                           map.fingerprint.model_type, map.fingerprint.layers,
                           map.fingerprint.kv_heads, map.objective);
      });
}

}  // namespace fasa::python
