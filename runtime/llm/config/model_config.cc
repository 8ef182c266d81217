#include "runtime/llm/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/config/config_parts.h"
#include "runtime/llm/config/defaults_file.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/gguf/gguf_texts.h"
#include "runtime/llm/weights/quantization_config.h"

namespace fasa {
namespace {

constexpr int64_t kMaxLayers = 4096;

std::vector<int32_t> read_eos(const JsonFields& fields) {
  constexpr const char* kKey = "eos_token_id";
  std::vector<int32_t> ids;
  if (!fields.has(kKey)) return ids;
  const auto& value = fields.at(kKey);
  const auto add = [&](const nlohmann::json& id) {
    if (id.is_null()) return;
    const double number = id.is_number() ? id.get<double>() : -2;
    if (number < -1 || number > kMaxWidth || number != std::floor(number)) {
      fields.fail(kKey, "a token id or a list of token ids");
    }
    ids.push_back(static_cast<int32_t>(number));
  };
  if (value.is_array()) {
    for (const auto& id : value) add(id);
  } else {
    add(value);
  }
  return ids;
}

void read_shapes(const JsonFields& fields, ModelConfig* config) {
  const auto integer = [&](const char* key, int64_t high) {
    return static_cast<int>(fields.integer(key, 1, high));
  };
  config->vocab_size = integer("vocab_size", kMaxWidth);
  const ConfigKeys& keys = config->family->keys;
  const auto either = [&](const char* key, const char* old, int64_t high) {
    return integer(fields.has(key) || old == nullptr ? key : old, high);
  };
  config->hidden = either(keys.hidden, keys.old_hidden, kMaxWidth);
  config->layers = integer(keys.layers, kMaxLayers);
  config->predicting_layers =
      static_cast<int>(fields.integer_or("num_nextn_predict_layers", 0, kMaxLayers, 0));
  config->query_heads = either(keys.query_heads, keys.old_query_heads, kMaxHeads);
  config->intermediate = keys.intermediate != nullptr ? integer(keys.intermediate, kMaxWidth)
                                                      : keys.default_expansion * config->hidden;
  config->kv_heads =
      keys.kv_heads == nullptr
          ? config->query_heads
          : static_cast<int>(fields.integer_or(keys.kv_heads, 1, kMaxHeads, config->query_heads));
  if (config->query_heads % config->kv_heads != 0) {
    fields.fail("num_key_value_heads",
                fmt::format("a divisor of num_attention_heads = {}", config->query_heads));
  }
  if (fields.has("head_dim")) {
    config->head_dim = integer("head_dim", kMaxHeadDim);
  } else if (keys.default_head_dim > 0) {
    config->head_dim = keys.default_head_dim;  // as in transformers, whatever the hidden size
  } else if (config->hidden % config->query_heads != 0) {
    fields.fail("head_dim", "set, because hidden_size is not a multiple of num_attention_heads");
  } else {
    config->head_dim = config->hidden / config->query_heads;
  }
  if (config->head_dim % 2 != 0 || config->head_dim > kMaxHeadDim) {
    fields.fail("head_dim", fmt::format("an even number up to {}", kMaxHeadDim));
  }
}

Activation read_activation(const JsonFields& fields, const ConfigKeys& keys) {
  const std::string name = keys.activation == nullptr
                               ? keys.default_activation
                               : fields.text(keys.activation).value_or(keys.default_activation);
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
  config->qkv_bias = chosen(family.biases.qkv);
  config->output_bias = chosen(family.biases.output);
  config->mlp_bias = chosen(family.biases.mlp);
  config->head_bias = chosen(family.biases.head);
  if (chosen(family.has_head_norm)) config->head_norm = family.head_norm;
  config->parallel = chosen(family.parallel);
  config->one_norm = config->parallel && family.one_norm_when_parallel;
  config->tie_embeddings = fields.boolean_or("tie_word_embeddings", family.tied_embeddings);
  config->activation = read_activation(fields, family.keys);
}

// Call after the rotary parameters are read.
void read_mla(const JsonFields& fields, ModelConfig* config) {
  const auto integer = [&](const char* key) {
    return static_cast<int>(fields.integer(key, 1, kMaxHeadDim));
  };
  if (fields.boolean_or("attention_bias", false)) fields.fail("attention_bias", "false");
  config->mla = {.latent = integer("kv_lora_rank"),
                 .query_rank = fields.has("q_lora_rank") ? integer("q_lora_rank") : 0,
                 .plain = integer("qk_nope_head_dim"),
                 .value = integer("v_head_dim")};
  config->rotary_dims = integer("qk_rope_head_dim");
  if (config->rotary_dims % 2 != 0) fields.fail("qk_rope_head_dim", "an even number");
  if (config->mla.latent % 2 != 0) fields.fail("kv_lora_rank", "an even number");
  config->kv_heads = 1;
  config->head_dim = config->rotary_dims + config->mla.latent;
}

void read_bloom(const JsonFields& fields, ModelConfig* config) {
  if (fields.boolean_or("apply_residual_connection_post_layernorm", false)) {
    fields.fail("apply_residual_connection_post_layernorm", "false");
  }
  config->alibi_slopes = alibi_slopes(config->query_heads, AlibiOrder::kExtrasLast, 8);
}

void read_mpt(const JsonFields& config_fields, const std::string& name, ModelConfig* config) {
  if (!config_fields.boolean_or("no_bias", true)) config_fields.fail("no_bias", "true");
  double most = 8;
  if (config_fields.has("attn_config")) {
    const JsonFields fields(config_fields.at("attn_config"), name, "attn_config.");
    if (!fields.boolean_or("alibi", true)) fields.fail("alibi", "true");
    if (fields.boolean_or("qk_ln", false)) fields.fail("qk_ln", "false");
    if (fields.has("clip_qkv")) fields.fail("clip_qkv", "null");
    if (fields.has("softmax_scale")) fields.fail("softmax_scale", "null");
    most = fields.number_or("alibi_bias_max", 1e-3, 1e3, 8);
  }
  config->alibi_slopes = alibi_slopes(config->query_heads, AlibiOrder::kInterleaved, most);
}

void read_scales(const JsonFields& fields, ModelConfig* config) {
  constexpr double kLow = 1e-6, kHigh = 1e6;
  const ConfigKeys& keys = config->family->keys;
  const auto factor = [&](const char* key) {
    return key == nullptr ? 1 : fields.number_or(key, kLow, kHigh, 1);
  };
  config->embedding_scale = static_cast<float>(factor(keys.embedding_scale));
  if (config->family->root_embedding_scale) {
    config->embedding_scale = std::sqrt(static_cast<float>(config->hidden));
  }
  config->residual_scale = static_cast<float>(factor(keys.residual_scale));
  config->logits_scale = static_cast<float>(1 / factor(keys.logits_divisor));
  if (keys.logits_scale != nullptr) {
    config->logits_scale = static_cast<float>(
        fields.number_or(keys.logits_scale, kLow, kHigh, keys.default_logits_scale));
  }
  if (keys.score_scale != nullptr) {
    config->score_scale = static_cast<float>(factor(keys.score_scale));
  }
  if (keys.fixed_score_scale > 0) {
    config->score_scale = static_cast<float>(keys.fixed_score_scale);
  }
  if (keys.query_scalar != nullptr) {
    const double scalar =
        fields.number_or(keys.query_scalar, kLow, kHigh, keys.default_query_scalar);
    config->score_scale = static_cast<float>(1 / std::sqrt(scalar));
  }
}

// The context that a scaling extends, unless the config counts the extended one already.
void extend_positions(ModelConfig* config) {
  const RopeParameters& rope = config->rope;
  const bool linear = rope.kind == RopeKind::kLinear && !config->family->local_rope;
  if (rope.kind != RopeKind::kYarn && !linear) return;
  const double extended = rope.factor * static_cast<double>(rope.original_positions);
  const double limit = static_cast<double>(kMaxPositions);
  config->max_positions =
      std::max(config->max_positions, static_cast<int64_t>(std::min(extended, limit)));
}

void read_rotary(const JsonFields& fields, const std::string& name, int64_t context,
                 ModelConfig* config) {
  const ModelFamily& family = *config->family;
  config->rope = read_rope(fields, name, config->max_positions,
                           {.share = family.rotary_share,
                            .partial = family.partial_rotary,
                            .proportional = family.proportional_rope,
                            .theta = family.rope_theta,
                            .context = context});
  extend_positions(config);
  if (family.local_rope) {
    config->local_rope =
        read_local_rope(fields, name, config->max_positions, family.local_rope_theta);
  }
  if (family.query_growth) {
    if (!fields.has("rope_parameters")) fields.fail("rope_parameters", "an object");
    config->query_growth = {static_cast<float>(config->rope.query_growth),
                            static_cast<int32_t>(config->rope.original_positions)};
  }
  const bool all = config->rope.kind == RopeKind::kProportional;
  config->rotary_dims = static_cast<int>((all ? 1 : config->rope.share) * config->head_dim);
  if (config->rotary_dims % 2 != 0) {
    fields.fail("head_dim",
                fmt::format("a number whose rotated share ({}) is an even number of dimensions",
                            config->rope.share));
  }
  const auto pairs = static_cast<size_t>(config->rotary_dims / 2);
  const auto check = [&](const RopeParameters& rope) {
    if (rope.kind == RopeKind::kLongRope && rope.pair_factors.size() != pairs) {
      fields.fail(fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling",
                  fmt::format("{} numbers in short_factor and in long_factor", pairs));
    }
  };
  check(config->rope);
  if (config->local_rope) check(*config->local_rope);
}

// `of_experts`: sum of the experts' intermediate sizes in one layer.
int64_t sum_of_mlps(const ModelConfig& config, int64_t of_experts) {
  const int64_t matrices = config.family->names.gated() ? 3 : 2;
  int64_t sum = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    const bool routed = config.has_experts(layer);
    int64_t rows = routed ? 3 * of_experts + config.experts.count : 0;
    if (!routed || config.experts.beside_mlp) rows += matrices * config.mlp_width(layer);
    sum += config.hidden * (rows + 2 * int64_t{config.layer_input});
  }
  return sum;
}

}  // namespace

Geometry ModelConfig::geometry() const {
  Geometry geometry;
  geometry.layers = attention_layers();
  geometry.linear = linear;
  geometry.kv_heads = kv_heads;
  geometry.query_heads = query_heads;
  geometry.key_dim = head_dim;
  geometry.value_dim = value_dim();
  geometry.rotary_dims = rotary_dims;
  geometry.rotary_layout = family->rotary_layout;
  geometry.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  if (has_mla()) {
    geometry.scale = static_cast<float>(rope.score_factor /
                                        std::sqrt(static_cast<double>(mla.plain + rotary_dims)));
  } else if (score_scale > 0) {
    geometry.scale = score_scale;
  }
  geometry.alibi_slopes = alibi_slopes;
  geometry.windows = windows;
  geometry.window_heads = window_heads;
  geometry.shared_layers = shared_layers;
  geometry.score_cap = score_cap;
  return geometry;
}

int ModelConfig::attention_index(int layer) const {
  if (linear_layers.empty()) return layer;
  return static_cast<int>(std::count(linear_layers.begin(), linear_layers.begin() + layer, false));
}

int ModelConfig::attention_layer(int index) const {
  int layer = index;
  while (attention_index(layer) < index || is_linear(layer)) ++layer;
  return layer;
}

int64_t ModelConfig::max_qkv_width() const {
  int64_t widest = 0;
  for (int layer = 0; layer < layers; ++layer) widest = std::max(widest, qkv_width(layer));
  return widest;
}

int64_t ModelConfig::attention_parameters(int layer) const {
  const int64_t width = hidden;
  if (is_linear(layer)) {
    return width * (linear.channels() + 2 * (linear.value_width() + linear.value_heads)) +
           int64_t{linear.channels()} * linear.taps;
  }
  if (!has_mla()) {
    const HeadShape own = heads(layer);
    const int kv = is_shared(layer) ? 0 : takes_keys_as_values(layer) ? 1 : 2;
    const int of_queries = family->output_gate ? 3 : 2;
    return width * own.key_dim * (of_queries * query_heads + kv * own.kv_heads);
  }
  const int64_t queries = int64_t{query_heads} * (mla.plain + rotary_dims);
  const int64_t down = width * (mla.query_rank + head_dim);
  const int64_t heads = int64_t{query_heads} * mla.latent * (mla.plain + mla.value);
  return down + (mla.query_rank > 0 ? mla.query_rank : width) * queries + heads +
         width * query_heads * mla.value;
}

int64_t ModelConfig::mlp_parameters() const {
  return sum_of_mlps(*this, experts.all_intermediate());
}

int64_t ModelConfig::read_mlp_parameters() const {
  return sum_of_mlps(*this, experts.read_intermediate());
}

int64_t ModelConfig::parameters() const {
  const int64_t width = hidden;
  int64_t attention = 0;
  for (int layer = 0; layer < layers; ++layer) attention += attention_parameters(layer);
  const int64_t embeddings = width * vocab_size * (tie_embeddings ? 1 : 2) +
                             int64_t{layers} * layer_input * (layer_vocab_size + width);
  return attention + layers * 2 * width + mlp_parameters() + embeddings + width;
}

DType ModelConfig::auto_dtype() const {
  constexpr int64_t kBillion = 1'000'000'000;
  return parameters() < kBillion ? DType::kF32 : DType::kBF16;
}

bool ModelConfig::is_eos(int32_t id) const {
  return std::find(eos_ids.begin(), eos_ids.end(), id) != eos_ids.end();
}

ModelConfig ModelConfig::parse(std::string_view json, const std::string& name, int64_t context) {
  const nlohmann::json whole = parse_json(json, name);
  QuantizationConfig::parse(whole, name);  // throws for unsupported quantization
  const TextConfig text(whole, name);
  const JsonFields fields(text.object(), name, text.prefix());
  ModelConfig config;
  config.model_type = fields.text("model_type").value_or("");
  const std::string& type = config.model_type;
  config.family = ModelFamily::find(config.model_type);
  if (config.family == nullptr) fields.fail("model_type", ModelFamily::all_types());
  const ConfigKeys& keys = config.family->keys;
  read_shapes(fields, &config);
  read_choices(fields, &config);
  config.norm_eps =
      static_cast<float>(fields.number_or(keys.norm_eps, 0, 1, keys.default_norm_eps));
  config.max_positions =
      keys.positions == nullptr ? kMaxPositions : fields.integer(keys.positions, 1, kMaxPositions);
  if (config.family->position == PositionKind::kRotary) {
    read_rotary(fields, name, context, &config);
  }
  if (config.family->latent_attention) read_mla(fields, &config);
  read_experts(fields, &config);
  if (type == "bloom") read_bloom(fields, &config);
  if (type == "mpt") read_mpt(fields, name, &config);
  if (type == "gemma2") read_gemma2(fields, &config);
  if (type == "gemma3_text") read_gemma3(fields);
  read_scales(fields, &config);
  read_layer_kinds(fields, &config);
  if (type == "gemma4_text") read_gemma4(fields, name, &config);
  read_linear(fields, &config);
  config.linear.dtype = config.auto_dtype();
  config.eos_ids = read_eos(fields);
  const char* dtype_key = fields.has("dtype") ? "dtype" : "torch_dtype";
  const std::string dtype = fields.text(dtype_key).value_or("");
  if (dtype == "float32") config.stored_dtype = DType::kF32;
  if (dtype == "float16") config.stored_dtype = DType::kF16;
  if (dtype == "bfloat16") config.stored_dtype = DType::kBF16;
  return config;
}

void ModelConfig::parse_generation(std::string_view json, const std::string& name) {
  std::vector<int32_t> ids = DefaultsFile(json, name).ids("eos_token_id");
  if (!ids.empty()) eos_ids = std::move(ids);
}

// OWNER/NAME, as on a hub.
static bool is_repository_name(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && slash > 0 && slash + 1 < text.size() &&
         text.find('/', slash + 1) == std::string_view::npos && text.front() != '.' &&
         text.front() != '~';
}

ModelConfig ModelConfig::load(const std::string& dir, int64_t context) {
  if (is_gguf(dir)) {
    const GgufFiles files(dir);
    return parse(gguf_config_json(files.header()), files.header().name(), context);
  }
  if (!std::filesystem::is_directory(dir)) {
    throw InputError(
        fmt::format("{}: there is no such folder; give a Hugging Face folder with config.json and "
                    "*.safetensors, or a GGUF file{}",
                    dir, is_repository_name(dir) ? " (fasa downloads no models)" : ""));
  }
  const std::string path = dir + "/config.json";
  if (!std::filesystem::exists(path)) {
    throw InputError(
        fmt::format("{}: the folder has neither config.json nor a GGUF file; give a Hugging Face "
                    "model's folder",
                    dir));
  }
  ModelConfig config = parse(read_file(path), path, context);
  const std::string generation = dir + "/generation_config.json";
  if (std::filesystem::exists(generation)) {
    config.parse_generation(read_file(generation), generation);
  }
  return config;
}

}  // namespace fasa
