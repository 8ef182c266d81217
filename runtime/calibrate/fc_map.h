// The FC map: the order in which TIP uses the frequency chunks of each layer and KV head of one
// model. Made by calibration.
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

// Properties of the model that a map belongs to.
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
  // Dimensions of each chunk, best first, covering the head: pairs that RoPE rotates together, and
  // single dimensions that it does not rotate.
  std::vector<std::vector<int>> chunks;
  // Mean CA of each chunk, in the order of Geometry::ranked_chunks(). Measured on a quarter of the
  // queries if the objective does not use it.
  std::vector<double> agreement;
  std::vector<double>
      distant_attention_kept;  // share of the oracle's distant attention after 1, 2, ... chunks
  // Energy per dimension, which is what errors of its codes cost: mean q² times the variance of
  // keys within pages, as a share of the head's. Empty in maps made without it.
  std::vector<double> energy = {};

  // All dimensions of the head in slice order, chunk by chunk. Pairs begin at even positions, so
  // that no slice splits them: if the position is odd, the next single dimension goes first (the
  // number of single dimensions is even).
  std::vector<int16_t> dims() const;
  // The first 2 x `tip_chunks` of them. The `fine_chunks` pairs of the most energy go first, where
  // slices have more bits.
  std::vector<int16_t> dims(int tip_chunks, int fine_chunks) const;
  bool operator==(const HeadRanking&) const = default;
};

// The best slice of at most `bytes` per token and KV head, found by calibration.
struct MapSlice {
  SliceDType dtype = SliceDType::kInt2;
  int tip_chunks = 0;
  int fine_chunks = 0;  // of these, in int4; only with int2
  int bytes = 0;
  bool operator==(const MapSlice&) const = default;
};

struct FcMap {
  static constexpr int kSchema = 2;
  std::string objective;  // distant_attention, ca
  std::string data_hash;
  int sinks = 0, recent = 0, window = 0, tokens = 0, queries = 0;
  bool probes = true;
  std::optional<MapSlice> slice;  // for selection.slice = map
  ModelFingerprint fingerprint;
  std::vector<std::vector<HeadRanking>> heads;  // [layers][kv_heads]
  bool operator==(const FcMap&) const = default;

  // The best 2 x `tip_chunks` key dimensions of every head, [layers][kv_heads][2 x tip_chunks], the
  // form that a Runtime takes, with `fine_chunks` of them for more bits. Throws UsageError if a
  // head has fewer.
  std::vector<int16_t> slice_dims(int tip_chunks, int fine_chunks = 0) const;
  // Throws InputError naming the first property that differs, both values, and what to do.
  void require_fits(const ModelFingerprint& model, const std::string& path) const;

  // Checks only the properties in a geometry: layers, heads, dimensions, rotary layout.
  void require_fits(const Geometry& geometry, const std::string& path) const;

  // All throw InputError naming path and position.
  static FcMap load(const std::string& path);
  static FcMap parse(std::string_view json, const std::string& name);
  // Writes atomically (temporary file, then rename). Throws UsageError; check_writable()
  // (output_file.h) finds a bad path earlier.
  void save(const std::string& path) const;
  std::string to_json() const;
};

// All chunks of every head in natural order, for slices over all FCs; needs no map.
std::vector<int16_t> all_slice_dims(const Geometry& geometry);

// Dimensions of the slices that `config` asks for: the first chunks of `map`, or all chunks if it
// is null. Throws UsageError if the chunks have to be ranked and there is no map.
std::vector<int16_t> configured_slice_dims(const Config& config, const Geometry& geometry,
                                           const FcMap* map);

// The share of a range of KV heads: [layers][heads.count][...] of [layers][kv_heads][...].
std::vector<int16_t> share_of_slice_dims(const std::vector<int16_t>& slice_dims,
                                         const Geometry& whole, HeadRange heads);
// The share of one layer: [1][kv_heads][...].
std::vector<int16_t> layer_of_slice_dims(const std::vector<int16_t>& slice_dims,
                                         const Geometry& whole, int layer);

}  // namespace fasa
