#include "runtime/llm/config/config_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace fasa {
namespace {

constexpr int64_t kMaxExperts = 4096;

int read_count(const JsonFields& fields, std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    if (fields.has(key)) return static_cast<int>(fields.integer(key, 1, kMaxExperts));
  }
  // Throws for the missing key.
  return static_cast<int>(fields.integer(*keys.begin(), 1, kMaxExperts));
}

int read_chosen(const JsonFields& fields, int count) {
  return static_cast<int>(fields.integer("num_experts_per_tok", 1, count));
}

int read_width(const JsonFields& fields) {
  return static_cast<int>(fields.integer("moe_intermediate_size", 1, kMaxWidth));
}

void read_mixtral(const JsonFields& fields, ModelConfig* config) {
  ExpertShape& experts = config->experts;
  experts.count = read_count(fields, {"num_local_experts"});
  experts.chosen = read_chosen(fields, experts.count);
  experts.intermediate = config->intermediate;
  experts.normalised = true;
  config->expert_layers.assign(static_cast<size_t>(config->layers), true);
}

void read_qwen(const JsonFields& fields, ModelConfig* config) {
  ExpertShape& experts = config->experts;
  experts.count = read_count(fields, {"num_experts", "num_local_experts"});
  experts.chosen = read_chosen(fields, experts.count);
  experts.intermediate = read_width(fields);
  const Choice& normalised = config->family->normalised_experts;
  experts.normalised = normalised.key == nullptr
                           ? normalised.otherwise
                           : fields.boolean_or(normalised.key, normalised.otherwise);
  if (!config->family->names.shared_gate.empty()) {
    experts.shared_intermediate =
        static_cast<int>(fields.integer("shared_expert_intermediate_size", 1, kMaxWidth));
  }
  const auto layers = static_cast<size_t>(config->layers);
  const auto step =
      static_cast<size_t>(fields.integer_or("decoder_sparse_step", 1, kMaxExperts, 1));
  config->expert_layers.resize(layers);
  for (size_t i = 0; i < layers; ++i) config->expert_layers[i] = (i + 1) % step == 0;
  constexpr const char* kDense = "mlp_only_layers";
  if (!fields.has(kDense)) return;
  const nlohmann::json& dense = fields.at(kDense);
  if (!dense.is_array()) fields.fail(kDense, "a list of layer numbers");
  for (const nlohmann::json& layer : dense) {
    if (!layer.is_number_integer() || layer < 0 || layer >= layers) {
      fields.fail(kDense, fmt::format("layer numbers from 0 to {}", layers - 1));
    }
    config->expert_layers[layer.get<size_t>()] = false;
  }
}

void read_gpt_oss(const JsonFields& fields, ModelConfig* config) {
  read_mixtral(fields, config);
  ClampedGate gate;
  gate.alpha = static_cast<float>(fields.number_or("swiglu_alpha", 1e-3, 1e3, gate.alpha));
  gate.limit = static_cast<float>(fields.number_or("swiglu_limit", 1e-3, 1e6, gate.limit));
  config->experts.clamped = gate;
}

void read_gemma4(const JsonFields& fields, ModelConfig* config) {
  if (!fields.boolean_or("enable_moe_block", false)) return;
  ExpertShape& experts = config->experts;
  experts.count = read_count(fields, {"num_experts"});
  experts.chosen = static_cast<int>(fields.integer("top_k_experts", 1, experts.count));
  experts.intermediate = read_width(fields);
  experts.normalised = true;
  experts.beside_mlp = true;
  config->expert_layers.assign(static_cast<size_t>(config->layers), true);
}

void read_shared(const JsonFields& fields, ExpertShape* experts) {
  const int64_t shared = fields.integer_or("n_shared_experts", 0, kMaxExperts, 0);
  if (shared * experts->intermediate > kMaxWidth) {
    fields.fail("n_shared_experts", fmt::format("less than {}", kMaxWidth / experts->intermediate));
  }
  experts->shared_intermediate = static_cast<int>(shared) * experts->intermediate;
  experts->scale = static_cast<float>(fields.number_or("routed_scaling_factor", 1e-6, 1e6, 1));
}

void read_glm4_moe(const JsonFields& fields, ModelConfig* config) {
  const int64_t dense = fields.integer_or("first_k_dense_replace", 0, kMaxExperts, 1);
  if (dense >= config->layers) return;
  if (fields.integer_or("n_group", 1, kMaxExperts, 1) != 1) fields.fail("n_group", "1");
  ExpertShape& experts = config->experts;
  experts.count = read_count(fields, {"n_routed_experts", "num_local_experts"});
  experts.chosen = read_chosen(fields, experts.count);
  experts.intermediate = read_width(fields);
  experts.sigmoid = true;
  experts.normalised = fields.boolean_or("norm_topk_prob", true);
  read_shared(fields, &experts);
  config->expert_layers.assign(static_cast<size_t>(config->layers), true);
  std::fill_n(config->expert_layers.begin(), dense, false);
}

void read_groups(const JsonFields& fields, ExpertShape* experts) {
  const std::string method = fields.text("topk_method").value_or("greedy");
  if (method == "greedy") return;
  if (method != "group_limited_greedy") {
    fields.fail("topk_method", "greedy or group_limited_greedy");
  }
  experts->groups = static_cast<int>(fields.integer("n_group", 1, experts->count));
  if (experts->count % experts->groups != 0) {
    fields.fail("n_group", fmt::format("a divisor of n_routed_experts = {}", experts->count));
  }
  experts->chosen_groups = static_cast<int>(fields.integer("topk_group", 1, experts->groups));
  const int reachable = experts->count / experts->groups * experts->chosen_groups;
  if (experts->chosen > reachable) {
    fields.fail("num_experts_per_tok",
                fmt::format("at most {}, the number of experts in topk_group groups", reachable));
  }
}

void read_deepseek(const JsonFields& fields, ModelConfig* config) {
  const int64_t dense = fields.integer_or("first_k_dense_replace", 0, kMaxExperts, 0);
  if (dense >= config->layers) return;
  if (fields.integer_or("moe_layer_freq", 1, kMaxExperts, 1) != 1) {
    fields.fail("moe_layer_freq", "1");
  }
  if (fields.boolean_or("norm_topk_prob", false)) fields.fail("norm_topk_prob", "false");
  const std::string scoring = fields.text("scoring_func").value_or("softmax");
  if (scoring != "softmax") fields.fail("scoring_func", "softmax");
  ExpertShape& experts = config->experts;
  experts.count = read_count(fields, {"n_routed_experts", "num_local_experts"});
  experts.chosen = read_chosen(fields, experts.count);
  experts.intermediate = read_width(fields);
  read_shared(fields, &experts);
  read_groups(fields, &experts);
  config->expert_layers.assign(static_cast<size_t>(config->layers), true);
  std::fill_n(config->expert_layers.begin(), dense, false);
}

}  // namespace

void read_experts(const JsonFields& fields, ModelConfig* config) {
  switch (config->family->experts) {
    case ExpertKind::kNone:
      return;
    case ExpertKind::kMixtral:
      return read_mixtral(fields, config);
    case ExpertKind::kQwen:
      return read_qwen(fields, config);
    case ExpertKind::kGptOss:
      return read_gpt_oss(fields, config);
    case ExpertKind::kGemma4:
      return read_gemma4(fields, config);
    case ExpertKind::kDeepSeek:
      return read_deepseek(fields, config);
    case ExpertKind::kGlm4Moe:
      return read_glm4_moe(fields, config);
  }
}

}  // namespace fasa
