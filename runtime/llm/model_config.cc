#include "runtime/llm/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/json_fields.h"

namespace fasa {
namespace {

// Above all models in sight, and small enough that products of two stay below 2^63.
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;

std::vector<int32_t> read_eos(const JsonFields& fields) {
  constexpr const char* kKey = "eos_token_id";
  std::vector<int32_t> ids;
  if (!fields.has(kKey)) return ids;
  const auto& value = fields.at(kKey);
  const auto add = [&](const nlohmann::json& id) {
    if (!id.is_number_integer() || id.get<int64_t>() < -1 || id.get<int64_t>() > kMaxWidth) {
      fields.fail(kKey, "a token id or a list of token ids");
    }
    ids.push_back(id.get<int32_t>());
  };
  if (value.is_array()) {
    for (const auto& id : value) add(id);
  } else {
    add(value);
  }
  return ids;
}

// mistral: every layer has the window. qwen2, qwen3: those of layer_types, or from
// max_window_layers on, where use_sliding_window says so. Others: none.
std::vector<int> read_windows(const JsonFields& config, const std::string& model_type, int layers) {
  constexpr int64_t kMaxWindow = INT32_MAX;
  if (model_type == "mistral") {
    // Written as null where there is none; transformers takes 4096 where the key is missing.
    if (!config.has("sliding_window") && config.present("sliding_window")) return {};
    const auto window = static_cast<int>(config.integer_or("sliding_window", 1, kMaxWindow, 4096));
    return std::vector<int>(static_cast<size_t>(layers), window);
  }
  const bool qwen = model_type == "qwen2" || model_type == "qwen3";
  if (!qwen || !config.boolean_or("use_sliding_window", false)) return {};
  if (!config.has("sliding_window") && config.present("sliding_window")) return {};
  const auto window = static_cast<int>(config.integer_or("sliding_window", 1, kMaxWindow, 4096));
  std::vector<int> windows(static_cast<size_t>(layers), 0);
  if (config.has("layer_types")) {
    const auto& types = config.at("layer_types");
    if (!types.is_array() || types.size() != windows.size()) {
      config.fail("layer_types", fmt::format("a list of {} texts, one per layer", layers));
    }
    for (size_t i = 0; i < windows.size(); ++i) {
      if (types[i] == "sliding_attention") {
        windows[i] = window;
      } else if (types[i] != "full_attention") {
        config.fail("layer_types", "full_attention or sliding_attention in each place");
      }
    }
    return windows;
  }
  const int64_t first = config.integer_or("max_window_layers", 0, kMaxLayers, 28);
  for (size_t i = 0; i < windows.size(); ++i) {
    if (static_cast<int64_t>(i) >= first) windows[i] = window;
  }
  return windows;
}

void read_shapes(const JsonFields& fields, ModelConfig* config) {
  const auto integer = [&](const char* key, int64_t high) {
    return static_cast<int>(fields.integer(key, 1, high));
  };
  config->vocab_size = integer("vocab_size", kMaxWidth);
  const ConfigKeys& keys = config->family->keys;
  config->hidden = integer(keys.hidden, kMaxWidth);
  config->intermediate = integer("intermediate_size", kMaxWidth);
  config->layers = integer(keys.layers, kMaxLayers);
  config->query_heads = integer(keys.query_heads, kMaxHeads);
  config->kv_heads =
      static_cast<int>(fields.integer_or("num_key_value_heads", 1, kMaxHeads, config->query_heads));
  if (config->query_heads % config->kv_heads != 0) {
    fields.fail("num_key_value_heads",
                fmt::format("a divisor of num_attention_heads = {}", config->query_heads));
  }
  if (fields.has("head_dim")) {
    config->head_dim = integer("head_dim", kMaxHeadDim);
  } else if (config->model_type == "qwen3") {
    config->head_dim = 128;  // transformers' default, whatever the hidden size
  } else if (config->hidden % config->query_heads != 0) {
    fields.fail("head_dim", "a number where hidden_size is no multiple of num_attention_heads");
  } else {
    config->head_dim = config->hidden / config->query_heads;
  }
  if (config->head_dim % 2 != 0 || config->head_dim > kMaxHeadDim) {
    fields.fail("head_dim", fmt::format("an even number up to {}", kMaxHeadDim));
  }
}

Activation read_activation(const JsonFields& fields, const ConfigKeys& keys) {
  const std::string name = fields.text(keys.activation).value_or(keys.default_activation);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  fields.fail(keys.activation, "silu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh");
}

void read_choices(const JsonFields& fields, ModelConfig* config) {
  const ModelFamily& family = *config->family;
  const auto chosen = [&](const Choice& choice) {
    return choice.key == nullptr ? choice.otherwise
                                 : fields.boolean_or(choice.key, choice.otherwise);
  };
  config->qkv_bias = chosen(family.qkv_bias);
  config->output_bias = chosen(family.output_bias);
  config->mlp_bias = chosen(family.mlp_bias);
  config->head_bias = chosen(family.head_bias);
  if (chosen(family.has_head_norm)) config->head_norm = family.head_norm;
  config->parallel = chosen(family.parallel);
  config->one_norm = config->parallel && family.one_norm_when_parallel;
  config->tie_embeddings = fields.boolean_or("tie_word_embeddings", family.tied_embeddings);
  config->activation = read_activation(fields, family.keys);
  if (fields.has("quantization_config")) {
    fields.fail("quantization_config", "none: quantised weights are not read");
  }
}

void read_rotary(const JsonFields& fields, const std::string& name, ModelConfig* config) {
  const ModelFamily& family = *config->family;
  config->rope = read_rope(fields, name, config->max_positions,
                           {.usual = family.rotary_share, .partial = family.partial_rotary});
  config->rotary_dims = static_cast<int>(config->rope.share * config->head_dim);
  if (config->rotary_dims % 2 != 0) {
    fields.fail("head_dim", fmt::format("one of which the rotated share, {}, is an even number",
                                        config->rope.share));
  }
}

}  // namespace

Geometry ModelConfig::geometry() const {
  Geometry geometry;
  geometry.layers = layers;
  geometry.kv_heads = kv_heads;
  geometry.query_heads = query_heads;
  geometry.key_dim = head_dim;
  geometry.value_dim = head_dim;
  geometry.rotary_dims = rotary_dims;
  geometry.rotary_layout = RotaryLayout::kHalf;
  geometry.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  geometry.windows = windows;
  return geometry;
}

int64_t ModelConfig::parameters() const {
  const int64_t width = hidden;
  const int64_t attention = width * head_dim * (2 * query_heads + 2 * kv_heads);
  const int64_t mlp = (family->names.gate.empty() ? 2 : 3) * width * intermediate;
  const int64_t embeddings = width * vocab_size * (tie_embeddings ? 1 : 2);
  return layers * (attention + mlp + 2 * width) + embeddings + width;
}

bool ModelConfig::is_eos(int32_t id) const {
  return std::find(eos_ids.begin(), eos_ids.end(), id) != eos_ids.end();
}

ModelConfig ModelConfig::parse(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  const JsonFields fields(document, name);
  ModelConfig config;
  config.model_type = fields.text("model_type").value_or("");
  config.family = ModelFamily::find(config.model_type);
  if (config.family == nullptr) fields.fail("model_type", ModelFamily::all_types());
  const ConfigKeys& keys = config.family->keys;
  read_shapes(fields, &config);
  read_choices(fields, &config);
  config.norm_eps =
      static_cast<float>(fields.number_or(keys.norm_eps, 0, 1, keys.default_norm_eps));
  config.max_positions = fields.integer(keys.positions, 1, kMostPositions);
  read_rotary(fields, name, &config);
  config.windows = read_windows(fields, config.model_type, config.layers);
  config.eos_ids = read_eos(fields);
  const char* dtype_key = fields.has("dtype") ? "dtype" : "torch_dtype";
  const std::string dtype = fields.text(dtype_key).value_or("");
  if (dtype == "float32") config.stored_dtype = DType::kF32;
  if (dtype == "float16") config.stored_dtype = DType::kF16;
  if (dtype == "bfloat16") config.stored_dtype = DType::kBF16;
  return config;
}

void ModelConfig::parse_generation(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  const JsonFields fields(document, name);
  std::vector<int32_t> ids = read_eos(fields);
  if (!ids.empty()) eos_ids = std::move(ids);
}

ModelConfig ModelConfig::load(const std::string& dir) {
  if (!std::filesystem::is_directory(dir)) {
    throw InputError(
        fmt::format("{}: no such folder; a model is a Hugging Face folder with "
                    "config.json and *.safetensors",
                    dir));
  }
  const std::string path = dir + "/config.json";
  ModelConfig config = parse(read_text_file(path), path);
  const std::string generation = dir + "/generation_config.json";
  if (std::filesystem::exists(generation)) {
    config.parse_generation(read_text_file(generation), generation);
  }
  return config;
}

}  // namespace fasa
