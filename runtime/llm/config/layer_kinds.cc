#include "runtime/llm/config/config_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace fasa {
namespace {

constexpr int64_t kMaxInterval = 4096;

// no_rope_layers holds 1 for rotated layers; without it, every no_rope_layer_interval-th layer is
// unrotated.
std::vector<bool> read_rotated(const JsonFields& fields, const ModelConfig& config) {
  std::vector<bool> rotated(static_cast<size_t>(config.layers), true);
  if (!config.family->unrotated_layers) return rotated;
  constexpr const char* kKey = "no_rope_layers";
  if (!fields.has(kKey)) {
    const auto interval =
        static_cast<size_t>(fields.integer_or("no_rope_layer_interval", 1, kMaxInterval, 4));
    for (size_t i = interval - 1; i < rotated.size(); i += interval) rotated[i] = false;
    return rotated;
  }
  const nlohmann::json& list = fields.at(kKey);
  const bool fits = list.is_array() && list.size() == rotated.size();
  for (size_t i = 0; fits && i < rotated.size(); ++i) {
    if (list[i] != 0 && list[i] != 1) fields.fail(kKey, "a list of 0 and 1");
    rotated[i] = list[i] == 1;
  }
  if (!fits) fields.fail(kKey, fmt::format("a list of {} numbers, one per layer", rotated.size()));
  return rotated;
}

std::vector<bool> read_layer_types(const JsonFields& fields, size_t layers) {
  constexpr const char* kKey = "layer_types";
  const nlohmann::json& types = fields.at(kKey);
  if (!types.is_array() || types.size() != layers) {
    fields.fail(kKey, fmt::format("a list of {} strings, one per layer", layers));
  }
  std::vector<bool> windowed(layers);
  for (size_t i = 0; i < layers; ++i) {
    windowed[i] = types[i] == "sliding_attention";
    if (!windowed[i] && types[i] != "full_attention") {
      fields.fail(kKey, "a list of full_attention and sliding_attention");
    }
  }
  return windowed;
}

std::vector<bool> read_windowed(const JsonFields& fields, const ModelConfig& config,
                                const std::vector<bool>& rotated) {
  const WindowRule& rule = config.family->window;
  std::vector<bool> windowed(rotated.size(), false);
  if (rule.layers == WindowedLayers::kNone) return windowed;
  if (rule.enabled != nullptr && !fields.boolean_or(rule.enabled, false)) return windowed;
  if (rule.layers == WindowedLayers::kAll) {
    windowed.assign(windowed.size(), true);
    return windowed;
  }
  if (fields.has("layer_types")) return read_layer_types(fields, windowed.size());
  const bool without = fields.present("sliding_window") && !fields.has("sliding_window");
  if (without && config.family->unrotated_full) return windowed;  // and no pattern
  const auto number = [&](const char* key, int64_t low, int64_t otherwise) {
    return static_cast<size_t>(fields.integer_or(key, low, kMaxInterval, otherwise));
  };
  switch (rule.layers) {
    case WindowedLayers::kNone:
    case WindowedLayers::kAll:
      break;
    case WindowedLayers::kFrom:
      for (size_t i = number("max_window_layers", 0, 28); i < windowed.size(); ++i) {
        windowed[i] = true;
      }
      break;
    case WindowedLayers::kUnrotated:
      for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = !rotated[i];
      break;
    case WindowedLayers::kPattern: {
      constexpr const char* kPattern = "sliding_window_pattern";
      if (fields.has(kPattern) && fields.at(kPattern).is_string()) {
        const auto letters = fields.at(kPattern).get<std::string>();  // "LLLG": local and global
        if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos) {
          fields.fail(kPattern, "a number, or letters L and G, one per layer of a period");
        }
        for (size_t i = 0; i < windowed.size(); ++i) {
          windowed[i] = letters[i % letters.size()] == 'L';
        }
        break;
      }
      const size_t every = number("sliding_window_pattern", 1, rule.pattern);
      for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = (i + 1) % every != 0;
      break;
    }
  }
  return windowed;
}

// 0 = none. A null key means none; a missing key means transformers' default.
int read_window(const JsonFields& fields, const WindowRule& rule) {
  constexpr const char* kKey = "sliding_window";
  if (fields.has(kKey)) return static_cast<int>(fields.integer(kKey, 1, INT32_MAX));
  return fields.present(kKey) ? 0 : rule.otherwise;
}

}  // namespace

void read_layer_kinds(const JsonFields& fields, ModelConfig* config) {
  const std::vector<bool> rotated = read_rotated(fields, *config);
  std::vector<bool> windowed = read_windowed(fields, *config, rotated);
  if (config->family->window.last_full) windowed.back() = false;
  if (std::find(windowed.begin(), windowed.end(), true) != windowed.end()) {
    const int window = read_window(fields, config->family->window);
    for (const bool has : windowed) {
      if (window > 0) config->windows.push_back(has ? window : 0);
    }
  }
  const bool only_windowed = config->family->unrotated_full && !config->windows.empty();
  if (!config->local_rope && !config->family->unrotated_layers && !only_windowed) return;
  for (size_t i = 0; i < rotated.size(); ++i) {
    const int8_t of_rotated = config->local_rope && windowed[i] ? 1 : 0;
    const bool turns = rotated[i] && (windowed[i] || !only_windowed);
    config->layer_rotations.push_back(turns ? of_rotated : int8_t{kUnrotated});
  }
}

}  // namespace fasa
