#include "runtime/llm/compute/model_slices.h"

#include <fmt/format.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/calibrate/map_settings.h"
#include "runtime/llm/gguf/gguf_files.h"

namespace fasa {
namespace {

// The first `count` FCs of every head in their natural order.
std::vector<int16_t> first_slice_dims(const Geometry& geometry, int count) {
  std::vector<int16_t> dims;
  for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
    for (int chunk = 0; chunk < count; ++chunk) {
      const Geometry::Pair pair = geometry.chunk_dims(chunk);
      dims.push_back(static_cast<int16_t>(pair.first));
      dims.push_back(static_cast<int16_t>(pair.second));
    }
  }
  return dims;
}

ModelSlices from_map(const Model& model, const std::string& path, int count, int fine = 0) {
  const FcMap map = FcMap::load(path);
  map.require_fits(model.fingerprint(), path);
  return {.dims = map.slice_dims(count, fine), .map = path};
}

// All FCs, ordered by the model's own map if it has a usable one.
ModelSlices all_ranked(const Model& model, const std::string& usual) {
  const Geometry geometry = model.config().geometry();
  if (std::filesystem::exists(usual)) {
    try {
      return from_map(model, usual, geometry.chunks());
    } catch (const Error& error) {
      log_warning(fmt::format(
          "{}; ignored, because slices over all frequency chunks need no FC map", error.what()));
    }
  }
  return {.dims = all_slice_dims(geometry), .map = ""};
}

}  // namespace

std::string usual_map(const std::string& model_path) {
  if (model_path.empty()) return "";
  if (!is_gguf(model_path)) return (std::filesystem::path(model_path) / "fc_map.json").string();
  std::filesystem::path path(gguf_paths(model_path).front());
  return path.replace_extension(".fc_map.json").string();
}

Config with_map(Config config, const std::string& model_path) {
  if (!asks_map(config)) return config;
  const std::string& given = config.selection.map;
  const std::string path = given.empty() ? usual_map(model_path) : given;
  take_from_map(FcMap::load(path), path, config);
  return config;
}

std::optional<ModelSlices> model_slices(const Model& model, const Config& config,
                                        const std::string& model_path) {
  const Geometry geometry = model.config().geometry();
  config.validate_for(geometry);
  const int count = config.effective_tip_chunks(geometry.chunks());
  const int fine = config.effective_fine_chunks();
  // Without slice reads, the dimensions do not matter.
  if (!config.reads_slices()) return ModelSlices{first_slice_dims(geometry, count), ""};
  if (!config.selection.map.empty()) return from_map(model, config.selection.map, count, fine);
  // With random weights no chunk is better than another.
  if (model_path.empty()) return ModelSlices{first_slice_dims(geometry, count), ""};
  const std::string usual = usual_map(model_path);
  if (!config.ranks_chunks(geometry.chunks())) return all_ranked(model, usual);
  if (std::filesystem::exists(usual)) return from_map(model, usual, count, fine);
  return std::nullopt;
}

}  // namespace fasa
