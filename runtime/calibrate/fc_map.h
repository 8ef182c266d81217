// The FC map: the order in which TIP uses frequency chunks, for every layer and KV head of one
// model. Calibration makes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/slice_format.h"
#include "runtime/base/geometry.h"

namespace fasa {

struct Config;  // runtime/config/config.h

// Properties that a map must share with the model that it is used with.
struct ModelFingerprint {
  std::string model_type;
  int layers = 0, kv_heads = 0, query_heads = 0, key_dim = 0, value_dim = 0, rotary_dims = 0;
  std::string rotary_layout;  // half, interleaved
  double rope_theta = 0;
  std::string rope_scaling;           // canonical text of the scaling parameters, "" = none
  std::vector<std::string> key_rows;  // per layer: hex bf16 bits of the first row of k_proj
  bool operator==(const ModelFingerprint&) const = default;
};

struct HeadRanking {
  // Dimensions of each chunk, best first, covering the head: pairs that RoPE rotates together,
  // single dimensions where nothing is rotated.
  std::vector<std::vector<int>> chunks;
  // Mean CA of each chunk, in the order of Geometry::ranked_chunks(); over a quarter of the queries
  // if the objective does not rank by it.
  std::vector<double> agreement;
  std::vector<double>
      distant_attention_kept;  // share of the oracle's distant attention after 1, 2, ... chunks

  // All dimensions of the head in slice order: chunk by chunk. A pair begins at an even position,
  // so that no slice splits it: at an odd position, the next single dimension goes before it (their
  // number is even).
  std::vector<int16_t> dims() const;
  bool operator==(const HeadRanking&) const = default;
};

// The slice that calibration found best within `bytes` per token and KV head.
struct MapSlice {
  SliceDType dtype = SliceDType::kInt2;
  int tip_chunks = 0;
  int bytes = 0;
  bool operator==(const MapSlice&) const = default;
};

struct FcMap {
  static constexpr int kSchema = 2;
  std::string objective;  // distant_attention, attention, distant_ca, ca
  std::string data_hash;
  int sinks = 0, recent = 0, window = 0, tokens = 0, queries = 0;
  bool probes = true;
  std::optional<MapSlice> slice;  // what selection.slice = map takes
  std::vector<int> fac_tokens;  // per layer, what selection.layer_budget = map takes; may be empty
  ModelFingerprint fingerprint;
  std::vector<std::vector<HeadRanking>> heads;  // [layers][kv_heads]
  bool operator==(const FcMap&) const = default;

  // The best 2 x `tip_chunks` key dimensions of every head, [layers][kv_heads][2 x tip_chunks], as
  // kernels take them. Throws UsageError when a head has fewer.
  std::vector<int16_t> slice_dims(int tip_chunks) const;
  // Throws InputError naming the first field that differs, both values, and what to do.
  void require_fits(const ModelFingerprint& model, const std::string& path) const;

  // Checks only what a geometry contains: layers, heads, dimensions, rotary layout.
  void require_fits(const Geometry& geometry, const std::string& path) const;

  // All throw InputError with path and position.
  static FcMap load(const std::string& path);
  static FcMap parse(std::string_view json, const std::string& name);
  // Writes aside, then renames. Throws UsageError; check_writable() (output_file.h) finds a bad
  // path before the work.
  void save(const std::string& path) const;
  std::string to_json() const;
};

// All chunks of every head in their natural order: what a slice over all FCs takes; no map needed.
std::vector<int16_t> all_slice_dims(const Geometry& geometry);

// What the slices of a runtime over `geometry` hold as `config` says: the first chunks of `map`,
// or, without one (null), all chunks. Throws UsageError where fewer chunks are asked for and there
// is no map.
std::vector<int16_t> configured_slice_dims(const Config& config, const Geometry& geometry,
                                           const FcMap* map);

// The part of KV heads of `whole`: [layers][heads.count][...] of [layers][kv_heads][...].
std::vector<int16_t> share_of_slice_dims(const std::vector<int16_t>& slice_dims,
                                         const Geometry& whole, HeadRange heads);
// The part of one layer: [1][kv_heads][...].
std::vector<int16_t> layer_of_slice_dims(const std::vector<int16_t>& slice_dims,
                                         const Geometry& whole, int layer);

}  // namespace fasa
