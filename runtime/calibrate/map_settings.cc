#include "runtime/calibrate/map_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace fasa {

bool asks_map(const Config& config) { return config.selection.slice == SlicePreset::kMap; }

void take_from_map(const FcMap& map, const std::string& path, Config& config) {
  if (!asks_map(config)) return;
  if (!map.slice) {
    throw InputError(fmt::format(
        "{}: the FC map has no value for selection.slice = map; make it with fasa calibrate "
        "--slice-bytes N",
        path));
  }
  Config::Selection& selection = config.selection;
  if (!selection.slice_dtype) selection.slice_dtype = map.slice->dtype;
  if (!selection.tip_chunks) selection.tip_chunks = map.slice->tip_chunks;
  if (!selection.fine_chunks && selection.slice_dtype == map.slice->dtype) {
    selection.fine_chunks = std::min(map.slice->fine_chunks, *selection.tip_chunks);
  }
}

}  // namespace fasa
