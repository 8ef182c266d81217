// Every setting of the runtime, one struct per axis. Filled from defaults, file, environment and
// flags by config_options.h; validate() before anything is built from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/replacement.h"
#include "kernels/row_format.h"
#include "kernels/slice_format.h"
#include "offload/device_options.h"
#include "offload/device_traits.h"
#include "runtime/base/error.h"
#include "runtime/base/geometry.h"
#include "runtime/config/weight_options.h"
#include "scheduler/prefetch_options.h"
#include "scheduler/selection/selection_table.h"

namespace fasa {

// A value that a key cannot have. Where the value came from (file and line, variable, flag) is put
// before the message by the code that knows it.
class ConfigError : public UsageError {
 public:
  // `key`: the path of the key, "selection.fac_tokens".
  ConfigError(std::string key, const std::string& given, const std::string& allowed);
  const std::string& key() const { return key_; }

 private:
  std::string key_;
};

// A count of tokens, or a share of a step's tokens in (0, 1].
struct TokenCount {
  int64_t tokens = 0;  // 0: `share` counts
  double share = 0;
  bool any() const { return tokens > 0 || share > 0; }
  bool operator==(const TokenCount&) const = default;
};

// Tokens that a step attends to by default, exactly and by codes; reasons: docs/design.md.
constexpr int64_t kDefaultFacTokens = 320;
constexpr int64_t kDefaultLowBitTokens = 1024;

// kMap: as calibration found; map_settings.h puts it into the config.
enum class LayerBudget : uint8_t { kUniform, kPyramid, kMap };
// All FCs int2, 1/4 bf16, 1/2 int2, as calibration found.
enum class SlicePreset : uint8_t { kDefault, kPaper, kLean, kMap };
// kAuto: on the host, with copies on the device as far as its memory goes.
enum class RowPlacement : uint8_t { kHost, kDevice, kAuto };

struct Config {
  std::string preset = "fasa-m";  // fasa-m, fasa-c, full; sets selection.kind and placement.rows

  struct Device {
    std::string name = "auto";
    std::string gpu;  // GPU that the emulated device imitates; "" = none
    int threads = 0;
    std::string numa = "auto";  // auto, interleave, or a node number
    bool graphs = true;         // cuda: decode steps as graphs
  } device;

  struct Memory {
    std::optional<uint64_t> device_memory;
    std::optional<uint64_t> host_memory;
    std::optional<uint64_t> pinned_memory;
  } memory;

  struct Selection {
    SelectionKind kind = SelectionKind::kFasa;
    SlicePreset slice = SlicePreset::kDefault;
    std::optional<SliceDType> slice_dtype;  // over the preset's
    std::optional<int> tip_chunks;          // over the preset's; FCs per head
    // One, or one per layer.
    std::vector<TokenCount> fac_tokens{{.tokens = kDefaultFacTokens, .share = 0}};
    std::optional<TokenCount> low_bit_tokens;  // none: auto, see Config::low_bit_tokens
    SliceDType value_codes = SliceDType::kInt2;
    int sinks = 4;
    int recent = 16;
    std::vector<int> dense_layers;
    std::string map;  // path of the FC map; empty = fc_map.json in the model's folder
    LayerBudget layer_budget = LayerBudget::kUniform;
    SelectionOptions options;
  } selection;

  struct Placement {
    RowPlacement rows = RowPlacement::kHost;
    std::optional<RowDType> row_dtype;  // none: that of the model's files
    // Per sequence, layer and KV head; none: 2 x fac_tokens or as many as fit, and more while
    // memory is free.
    std::optional<int> hot_rows;
    Replacement replacement = Replacement::kLru;
  } placement;

  struct Prefetch {
    std::optional<int> depth;  // layers ahead, 0 = off; none: from measured times
    PredictorKind predictor = PredictorKind::kAuto;
    int streams = 2;
    std::optional<int> head_groups;  // none: by the device's rates
  } prefetch;

  struct Link {
    double bandwidth = 25e9;       // bytes per second
    double latency = 10e-6;        // seconds
    bool bandwidth_given = false;  // by a source: a plan takes it over the GPU's own
  } link;

  WeightOptions weights;  // read only when a model is loaded

  struct Trace {
    std::string file;  // empty: none is written
  } trace;

  struct Sessions {
    std::string dir;                                     // empty: none are kept on disk
    std::optional<uint64_t> limit = uint64_t{64} << 30;  // bytes; always there
    double idle_after = 600;                             // seconds
    int sparse_turn_tokens = 0;
  } sessions;

  // Source of each given key, by its path: "c.toml:2: ". Later errors begin with it.
  std::map<std::string, std::string> places;

  SliceDType effective_slice_dtype() const;
  int effective_tip_chunks(int chunks) const;  // of a head with `chunks` FCs
  const TokenCount& fac_tokens_of(int layer) const;
  bool is_dense(int layer) const;
  // The settings of one layer, for a model of that layer alone.
  Config only_layer(int layer) const;
  // Null: what the device's own kernels do.
  std::shared_ptr<const TokenSelection> make_selection() const;
  // Low-bit tokens of heads with `chunks` FCs. Resolves auto: kDefaultLowBitTokens where supported,
  // else 0.
  TokenCount low_bit_tokens(int chunks) const;
  bool has_low_bit_set(int chunks) const { return low_bit_tokens(chunks).any(); }
  // Whether a set is chosen by reading slices.
  bool reads_slices() const;
  DeviceOptions device_options() const;

  // Sets selection.kind and placement.rows by `preset`. Throws ConfigError for an unknown preset.
  void apply_preset();

  // Checks everything that needs no model. Throws ConfigError naming the key, the given value and
  // the allowed values.
  void validate() const;
  // Checks against the model: layers, FCs. Throws UsageError, or ConfigError if the source of the
  // key is unknown.
  void validate_for(const Geometry& geometry) const;
  // Checks against the device. Throws as validate_for() does.
  void validate_on(const DeviceTraits& traits) const;

 private:
  void check_for(const Geometry& geometry) const;
  void check_on(const DeviceTraits& traits) const;
};

}  // namespace fasa
