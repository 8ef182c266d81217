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
constexpr int64_t kMaxPositions = int64_t{1} << 31;

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

void read_yarn(const JsonFields& fields, RopeParameters* rope) {
  rope->beta_fast = fields.number_or("beta_fast", 1e-6, 1e9, 32);
  rope->beta_slow = fields.number_or("beta_slow", 1e-6, 1e9, 1);
  rope->truncate = fields.boolean_or("truncate", true);
  const auto magnitude = [&](double scale) {
    return rope->factor <= 1 ? 1.0 : 0.1 * scale * std::log(rope->factor) + 1.0;
  };
  const double mscale = fields.number_or("mscale", 0, 1e6, 0);
  const double mscale_all = fields.number_or("mscale_all_dim", 0, 1e6, 0);
  const bool both = mscale != 0 && mscale_all != 0;
  rope->attention_factor =
      fields.number_or("attention_factor", 1e-6, 1e6,
                       both ? magnitude(mscale) / magnitude(mscale_all) : magnitude(1));
}

// transformers 5 writes rope_parameters; before, rope_theta stood alone beside rope_scaling, whose
// kind was once called "type".
RopeParameters read_rope(const JsonFields& config, const std::string& name, int64_t max_positions) {
  RopeParameters rope;
  rope.theta = config.number_or("rope_theta", 2, 1e15, 10000);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (config.number_or("partial_rotary_factor", 0, 1, 1) != 1) {
    config.fail("partial_rotary_factor", "1 for this model type");
  }
  if (!config.has(key)) return rope;
  const JsonFields fields(config.at(key), name, fmt::format("{}.", key));
  rope.theta = fields.number_or("rope_theta", 2, 1e15, rope.theta);
  if (fields.number_or("partial_rotary_factor", 0, 1, 1) != 1) {
    fields.fail("partial_rotary_factor", "1 for this model type");
  }
  const char* kind_key = fields.has("rope_type") ? "rope_type" : "type";
  const std::string kind = fields.text(kind_key).value_or("default");
  if (kind == "default") return rope;
  if (kind == "linear") {
    rope.kind = RopeKind::kLinear;
  } else if (kind == "llama3") {
    rope.kind = RopeKind::kLlama3;
  } else if (kind == "yarn") {
    rope.kind = RopeKind::kYarn;
  } else {
    fields.fail(kind_key, "default, linear, llama3, yarn");
  }
  rope.original_positions = config.integer_or(
      "original_max_position_embeddings", 1, kMaxPositions,
      fields.integer_or("original_max_position_embeddings", 1, kMaxPositions, max_positions));
  if (rope.kind == RopeKind::kYarn && !fields.has("factor")) {
    rope.factor = static_cast<double>(max_positions) / static_cast<double>(rope.original_positions);
  } else {
    rope.factor = fields.number("factor", 1e-3, 1e6);
  }
  if (rope.kind == RopeKind::kLlama3) {
    rope.low_freq_factor = fields.number("low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = fields.number("high_freq_factor", 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      fields.fail("high_freq_factor", "a number above low_freq_factor");
    }
  }
  if (rope.kind == RopeKind::kYarn) read_yarn(fields, &rope);
  return rope;
}

// mistral: every layer has the window. qwen2, qwen3: those of layer_types, or from
// max_window_layers on, where use_sliding_window says so. llama: none.
std::vector<int> read_windows(const JsonFields& config, const std::string& model_type, int layers) {
  constexpr int64_t kMaxWindow = INT32_MAX;
  if (model_type == "llama") return {};
  if (model_type == "mistral") {
    // Written as null where there is none; transformers takes 4096 where the key is missing.
    if (!config.has("sliding_window") && config.present("sliding_window")) return {};
    const auto window = static_cast<int>(config.integer_or("sliding_window", 1, kMaxWindow, 4096));
    return std::vector<int>(static_cast<size_t>(layers), window);
  }
  if (!config.boolean_or("use_sliding_window", false)) return {};
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
  config->hidden = integer("hidden_size", kMaxWidth);
  config->intermediate = integer("intermediate_size", kMaxWidth);
  config->layers = integer("num_hidden_layers", kMaxLayers);
  config->query_heads = integer("num_attention_heads", kMaxHeads);
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

void read_families(const JsonFields& fields, ModelConfig* config) {
  const bool attention_bias = fields.boolean_or("attention_bias", false);
  const std::string& type = config->model_type;
  config->qkv_bias = type == "qwen2" || (type != "mistral" && attention_bias);
  config->output_bias = (type == "llama" || type == "qwen3") && attention_bias;
  config->mlp_bias = type == "llama" && fields.boolean_or("mlp_bias", false);
  config->qk_norm = type == "qwen3";
  config->tie_embeddings = fields.boolean_or("tie_word_embeddings", false);
  const std::string activation = fields.text("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish") fields.fail("hidden_act", "silu");
  if (fields.has("quantization_config")) {
    fields.fail("quantization_config", "none: quantised weights are not read");
  }
}

}  // namespace

std::string RopeParameters::scaling_text() const {
  switch (kind) {
    case RopeKind::kDefault:
      return "";
    case RopeKind::kLinear:
      return fmt::format("linear factor={}", factor);
    case RopeKind::kLlama3:
      return fmt::format("llama3 factor={} low={} high={} original={}", factor, low_freq_factor,
                         high_freq_factor, original_positions);
    case RopeKind::kYarn:
      return fmt::format("yarn factor={} fast={} slow={} truncate={} attention={} original={}",
                         factor, beta_fast, beta_slow, truncate, attention_factor,
                         original_positions);
  }
  return "";
}

Geometry ModelConfig::geometry() const {
  Geometry geometry;
  geometry.layers = layers;
  geometry.kv_heads = kv_heads;
  geometry.query_heads = query_heads;
  geometry.key_dim = head_dim;
  geometry.value_dim = head_dim;
  geometry.rotary_dims = head_dim;
  geometry.rotary_layout = RotaryLayout::kHalf;
  geometry.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  geometry.windows = windows;
  return geometry;
}

int64_t ModelConfig::parameters() const {
  const int64_t width = hidden;
  const int64_t attention = width * head_dim * (2 * query_heads + 2 * kv_heads);
  const int64_t mlp = 3 * width * intermediate;
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
  const auto& type = config.model_type;
  if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3") {
    fields.fail("model_type", "llama, mistral, qwen2, qwen3");
  }
  read_shapes(fields, &config);
  read_families(fields, &config);
  config.rms_eps = static_cast<float>(fields.number_or("rms_norm_eps", 0, 1, 1e-6));
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxPositions);
  config.rope = read_rope(fields, name, config.max_positions);
  config.windows = read_windows(fields, type, config.layers);
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
