// All settings of the runtime, one struct per area. Filled from defaults, file, environment and
// flags by config_options.h; call validate() before use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/row_format.h"
#include "kernels/slice_format.h"
#include "offload/device_options.h"
#include "offload/device_traits.h"
#include "runtime/base/error.h"
#include "runtime/base/geometry.h"
#include "runtime/config/draft_kind.h"
#include "runtime/config/weight_options.h"
#include "scheduler/prefetch_options.h"
#include "scheduler/selection/selection_table.h"

namespace fasa {

// An invalid value of a key. The code that knows the value's source (file and line, variable, flag)
// puts it before the message.
class ConfigError : public UsageError {
 public:
  // `key`: the key's path, such as "selection.fac_tokens".
  ConfigError(std::string key, const std::string& given, const std::string& allowed);
  const std::string& key() const { return key_; }

 private:
  std::string key_;
};

// A number of tokens, or a share in (0, 1] of a step's tokens.
struct TokenCount {
  int64_t tokens = 0;  // 0: use `share`
  double share = 0;
  int64_t min_tokens = 0;  // bounds of a share; 0: none
  int64_t max_tokens = 0;
  bool any() const { return tokens > 0 || share > 0; }
  bool operator==(const TokenCount&) const = default;
};

// "320", "0.125" or, for a share with bounds, "320 to 1024".
std::string count_text(const TokenCount& count);

// fac_tokens = auto; reasons: docs/design.md.
constexpr TokenCount kDefaultFacTokens = {
    .tokens = 0, .share = 1.0 / 16, .min_tokens = 320, .max_tokens = 1024};
// The same if all other tokens are attended to by codes of at least 4 bits.
constexpr TokenCount kFineFacTokens = {.tokens = 128, .share = 0};

// kMap: from calibration; map_settings.h copies it into the config.
// kDefault: all FCs int2. kFine: all int4. kPaper: 1/4 of them bf16. kLean: 1/2 int2. kMap: from
// calibration.
enum class SlicePreset : uint8_t { kDefault, kFine, kPaper, kLean, kMap };
// kAuto: on the host, with copies on the device while it has free memory.
enum class RowPlacement : uint8_t { kHost, kDevice, kAuto };

struct Config {
  std::string preset = "fasa-m";  // fasa-m, fasa-c, full; sets selection.kind and placement.rows

  struct Device {
    std::string name = "auto";
    std::string gpu;  // GPU that the emulated device models; "" = none
    int threads = 0;
    std::string numa = "auto";  // auto, interleave, or a node number
    bool graphs = true;         // cuda: run decode steps as graphs
    bool kernel_times = true;   // cuda: measure what kernels cost
  } device;

  struct Memory {
    std::optional<uint64_t> device_memory;
    std::optional<uint64_t> host_memory;
    std::optional<uint64_t> pinned_memory;
    SnapshotRule snapshots;
  } memory;

  struct Selection {
    SelectionKind kind = SelectionKind::kFasa;
    SlicePreset slice = SlicePreset::kDefault;
    std::optional<SliceDType> slice_dtype;  // overrides the preset
    std::optional<int> tip_chunks;          // overrides the preset; FCs per head
    std::optional<int> fine_chunks;         // of these, in int4; only with slices in int2
    // One value for all layers, or one per layer; empty: auto, see fac_tokens().
    std::vector<TokenCount> fac_tokens;
    std::optional<TokenCount> low_bit_tokens;  // none: auto, see low_bit_tokens()
    std::optional<SliceDType> value_codes;     // overrides the preset
    int sinks = 4;
    int recent = 16;
    std::vector<int> dense_layers;
    std::string map;  // path of the FC map; empty = fc_map.json in the model's folder
  } selection;

  struct Placement {
    RowPlacement rows = RowPlacement::kHost;
    std::optional<RowDType> row_dtype;  // none: the dtype of the model's files
    // Per sequence, layer and KV head. none: 2 x fac_tokens or as many as fit, more while memory is
    // free.
    std::optional<int> hot_rows;
  } placement;

  struct Prefetch {
    std::optional<int> depth;  // layers ahead, 0 = off; none: from measurements
    PredictorKind predictor = PredictorKind::kAuto;
    int streams = 2;
    std::optional<int> head_groups;  // none: from the device's rates
  } prefetch;

  struct Link {
    std::optional<double> bandwidth;  // bytes per second; none: the GPU's own, else 25 GB/s
    double latency = 10e-6;           // seconds
  } link;

  WeightOptions weights;  // read only when a model is loaded: see weight_options()

  struct Drafts {
    DraftKind kind = DraftKind::kNone;
  } drafts;

  struct Audit {
    std::optional<int> every = 0;  // tokens; 0: never; none: by time
  } audit;

  struct Trace {
    std::string file;  // "": no file is written
  } trace;

  struct Sessions {
    std::string dir;                                     // "": sessions are not kept on disk
    std::optional<uint64_t> limit = uint64_t{64} << 30;  // bytes; always has a value
    double idle_after = 600;                             // seconds
    int sparse_turn_tokens = 0;
  } sessions;

  struct Serve {
    double prompt_share = 0.5;  // of prompt tokens, for the oldest prompt; see PromptTurns
  } serve;

  // Source of each explicit key, by its path: "c.toml:2: ". Later errors begin with it.
  std::map<std::string, std::string> places;

  SliceDType effective_slice_dtype() const;
  SliceDType effective_value_codes() const;
  int effective_tip_chunks(int chunks) const;  // per head with `chunks` FCs
  int effective_fine_chunks() const;
  // Whether an FC map has to rank the FCs: some are left out, or get more bits.
  bool ranks_chunks(int chunks) const;
  // Whether slices weigh tokens well enough for a low-bit set: all FCs, or two bits for each.
  bool weighs_tokens(int chunks) const;
  // fac_tokens of heads with `chunks` FCs, one value or one per layer. For auto: kFineFacTokens or
  // kDefaultFacTokens.
  std::vector<TokenCount> fac_tokens(int chunks) const;
  bool is_dense(int layer) const;
  // The settings of one layer, for a model that consists of that layer.
  Config only_layer(int layer) const;
  // Null: the device's own kernels select.
  std::shared_ptr<const TokenSelection> make_selection() const;
  // Low-bit tokens of heads with `chunks` FCs. For auto: all others where supported, else 0.
  TokenCount low_bit_tokens(int chunks) const;
  bool has_low_bit_set(int chunks) const { return low_bit_tokens(chunks).any(); }
  // Whether selection reads slices.
  bool reads_slices() const;
  DeviceOptions device_options() const;
  WeightOptions weight_options() const;  // `weights`, with the parts that drafts need

  // Sets selection.kind and placement.rows by `preset`. Throws ConfigError for an unknown preset.
  void apply_preset();

  // Checks everything that does not depend on a model. Throws ConfigError naming the key, the given
  // value and the allowed values.
  void validate() const;
  // Checks against the model: layers, FCs. Throws ConfigError if the key's source is unknown, else
  // UsageError naming the source.
  void validate_for(const Geometry& geometry) const;
  // Checks against the device. Throws like validate_for().
  void validate_on(const DeviceTraits& traits) const;

 private:
  void check_for(const Geometry& geometry) const;
  void check_on(const DeviceTraits& traits) const;
};

}  // namespace fasa
