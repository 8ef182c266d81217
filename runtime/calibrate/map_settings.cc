#include "runtime/calibrate/map_settings.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

bool asks_map(const Config& config) {
  return config.selection.slice == SlicePreset::kMap ||
         config.selection.layer_budget == LayerBudget::kMap;
}

void take_from_map(const FcMap& map, const std::string& path, Config& config) {
  Config::Selection& selection = config.selection;
  const auto require = [&](bool there, const char* asked, const char* flag) {
    if (there) return;
    throw InputError(fmt::format(
        "{}: the FC map has no value for {}; make it with fasa calibrate {}", path, asked, flag));
  };
  if (selection.slice == SlicePreset::kMap) {
    require(map.slice.has_value(), "selection.slice = map", "--slice-bytes N");
    if (!selection.slice_dtype) selection.slice_dtype = map.slice->dtype;
    if (!selection.tip_chunks) selection.tip_chunks = map.slice->tip_chunks;
  }
  if (selection.layer_budget == LayerBudget::kMap) {
    require(!map.fac_tokens.empty(), "selection.layer_budget = map", "--keep-attention SHARE");
    selection.fac_tokens.clear();
    for (const int tokens : map.fac_tokens) {
      selection.fac_tokens.push_back({.tokens = tokens, .share = 0});
    }
  }
}

}  // namespace fasa
