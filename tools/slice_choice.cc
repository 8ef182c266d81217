#include "tools/slice_choice.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/calibrate/map_settings.h"
#include "runtime/lab/capture/calibration.h"
#include "runtime/llm/gguf/gguf_file.h"
#include "tools/progress.h"

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

SliceChoice from_map(const Model& model, const std::string& path, int count) {
  const FcMap map = FcMap::load(path);
  map.require_fits(model.fingerprint(), path);
  return {.dims = map.slice_dims(count), .map = path, .seconds = 0};
}

// All FCs, in the order of the model's own map if it has one that can be used.
SliceChoice all_ranked(const Model& model, const std::string& usual) {
  const Geometry geometry = model.config().geometry();
  if (std::filesystem::exists(usual)) {
    try {
      return from_map(model, usual, geometry.chunks());
    } catch (const Error& error) {
      log_warning(fmt::format("{}; slices over all frequency chunks go without", error.what()));
    }
  }
  return {.dims = all_slice_dims(geometry), .map = "", .seconds = 0};
}

SliceChoice from_prompt(Model& model, const Config& config, std::span<const int32_t> prompt,
                        const std::string& missing, int count) {
  log_notice(
      fmt::format("{} does not exist; making an FC map from the prompt (fasa calibrate "
                  "makes one to keep)",
                  missing));
  const auto start = std::chrono::steady_clock::now();
  Progress progress("calibration");
  const FcMap map = calibrate_from_prompt(
      model, prompt, config.selection.sinks, config.selection.recent,
      [&](CalibrationPhase, int64_t done, int64_t total) { progress.update(done, total); });
  progress.clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_notice(fmt::format("FC map made from {} tokens in {:.1f} s", map.tokens, seconds));
  return {.dims = map.slice_dims(count), .map = "(made from the prompt)", .seconds = seconds};
}

}  // namespace

std::string usual_map(const std::string& model_dir) {
  if (model_dir.empty()) return "";
  std::filesystem::path path(model_dir);
  if (!is_gguf(model_dir)) return (path / "fc_map.json").string();
  return path.replace_extension(".fc_map.json").string();
}

Config with_map(Config config, const std::string& model_dir) {
  if (!asks_map(config)) return config;
  const std::string& given = config.selection.map;
  const std::string path = given.empty() ? usual_map(model_dir) : given;
  take_from_map(FcMap::load(path), path, config);
  return config;
}

SliceChoice choose_slices(Model& model, const Config& config, const std::string& model_dir,
                          std::span<const int32_t> prompt) {
  const Geometry geometry = model.config().geometry();
  config.validate_for(geometry);
  const int count = config.effective_tip_chunks(geometry.chunks());
  // What reads no slices takes any dimensions.
  if (!config.reads_slices()) {
    return {.dims = first_slice_dims(geometry, count), .map = "", .seconds = 0};
  }
  if (!config.selection.map.empty()) return from_map(model, config.selection.map, count);
  // Random weights have no better chunks.
  if (model_dir.empty()) {
    return {.dims = first_slice_dims(geometry, count), .map = "", .seconds = 0};
  }
  const std::string usual = usual_map(model_dir);
  if (count == geometry.chunks()) return all_ranked(model, usual);
  if (std::filesystem::exists(usual)) return from_map(model, usual, count);
  return from_prompt(model, config, prompt, usual, count);
}

}  // namespace fasa
