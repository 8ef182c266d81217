#include "runtime/plan/plan_json.h"

#include "runtime/catalog/geometry_catalog.h"
#include "runtime/catalog/gpu_catalog.h"
#include "runtime/config/config_options.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json terms_json(const CostTerms& terms) {
  constexpr double kMs = 1e3;
  return {{"append_ms", terms.append * kMs},         {"scoring_ms", terms.scoring * kMs},
          {"resolve_ms", terms.resolve * kMs},       {"attention_ms", terms.attention * kMs},
          {"prediction_ms", terms.prediction * kMs}, {"weights_ms", terms.weights * kMs},
          {"launches_ms", terms.launches * kMs},     {"wait_ms", terms.wait * kMs},
          {"setup_ms", terms.setup * kMs},           {"tpot_ms", terms.total() * kMs},
          {"transfer_ms", terms.transfer * kMs},     {"transfer_hidden", terms.hidden()},
          {"used_bytes", terms.used_bytes},          {"wasted_bytes", terms.wasted_bytes}};
}

Json step_json(const PlannedStep& step) {
  return {{"attention", terms_json(step.attention)}, {"with_weights", terms_json(step.whole)}};
}

Json kv_json(const KvMemory& kv) {
  return {{"device_slice_bytes", kv.device_slices},     {"device_row_bytes", kv.device_rows},
          {"device_hot_row_bytes", kv.device_hot_rows}, {"device_scratch_bytes", kv.device_scratch},
          {"device_state_bytes", kv.device_states},     {"host_state_bytes", kv.host_states},
          {"device_kv_bytes", kv.device_total()},       {"host_kv_bytes", kv.host_rows}};
}

Json prompt_json(const PlanOption& option) {
  const PromptPlan& prompt = option.prompt;
  const bool known = prompt.seconds > 0;
  return {{"chunk", option.prompt.chunk},
          {"piece", option.prompt.piece > 0 ? Json(option.prompt.piece) : Json(nullptr)},
          {"seconds", known ? Json(prompt.seconds) : Json(nullptr)},
          {"product_seconds", known ? Json(prompt.products) : Json(nullptr)},
          {"link_seconds", prompt.link},
          {"operations", prompt.operations},
          {"state_bytes", prompt.state_bytes},
          {"row_bytes_to_device", prompt.rows_back},
          {"row_bytes_to_host", prompt.rows_to_host},
          {"expert_bytes_to_device", prompt.experts}};
}

Json option_json(const PlanOption& option) {
  const bool slices = option.chunks > 0;
  return {
      {"name", option.name},
      {"set", option.set},
      {"usual", option.usual},
      {"attended",
       {{"rows", option.attended.rows},
        {"all_others", option.attended.all_others},
        {"low_bit_tokens", option.attended.low_bit_tokens}}},
      {"kl", option.chunks == 0 ? Json(0.0)
             : option.loss      ? Json(option.loss->kl)
                                : Json(nullptr)},
      {"kl_extrapolated", option.loss && option.loss->extrapolated},
      {"tokens_per_second", 1 / option.seconds()},
      {"preset", option.config.preset},
      {"tip_chunks", slices ? Json(option.chunks) : Json(nullptr)},
      {"fine_chunks", slices ? Json(option.fine_chunks) : Json(nullptr)},
      {"slice_dtype",
       slices ? Json(std::string(slice_dtype_name(option.slice_dtype))) : Json(nullptr)},
      {"value_codes", option.value_dtype ? Json(std::string(slice_dtype_name(*option.value_dtype)))
                                         : Json(nullptr)},
      {"all_low_bit", option.all_low_bit},
      {"configured", option.configured},
      {"hot_rows", option.hot_rows},
      {"extra_hot_rows", option.extra_hot_rows},
      {"extra_bytes", option.extra_bytes},
      {"hit_rate", option.hit_rate},
      {"coverage", option.coverage},
      {"kv", kv_json(option.kv)},
      {"device_bytes", option.device_bytes},
      {"host_bytes", option.host_bytes},
      {"int8_host_bytes", option.int8_host_bytes},
      {"fits", option.fits},
      {"longest_context", or_null(option.longest_context)},
      {"first_token", prompt_json(option)},
      {"predicted", step_json(option.step)},
      {"predicted_with_prefetch",
       option.prefetched ? step_json(*option.prefetched) : Json(nullptr)}};
}

Json expert_json(const ExpertOption& option) {
  return {{"place", option.on_host ? "host" : "device"},
          {"device_weight_bytes", option.device_bytes},
          {"host_weight_bytes", option.host_bytes},
          {"read_ms", option.seconds * 1e3}};
}

Json machine_json(const PlanMachine& machine) {
  const bool flops = machine.rates.operations > 0;
  return {{"name", machine.name},
          {"unified", machine.rates.unified},
          {"memory_bytes", or_null(machine.device_memory)},
          {"reserved_bytes", machine.reserved_bytes},
          {"host_memory_bytes", or_null(machine.host_memory)},
          {"memory_bandwidth", machine.rates.memory_bandwidth},
          {"link_bandwidth", machine.rates.link_bandwidth},
          {"link_latency_us", machine.rates.link_latency * 1e6},
          {"launch_us", machine.rates.kernels.launch * 1e6},
          {"tensor_flops", flops ? Json(machine.rates.operations) : Json(nullptr)}};
}

Json model_json(const ModelShape& model) {
  const Geometry& g = model.geometry;
  return {{"name", model.name},           {"parameters", model.parameters()},
          {"layers", g.layers},           {"shared_layers", g.shared_layers},
          {"query_heads", g.query_heads}, {"kv_heads", g.kv_heads},
          {"head_dim", g.key_dim},        {"windows", g.windows},
          {"hidden", model.hidden},       {"intermediate", model.intermediate},
          {"vocab_size", model.vocab},    {"max_positions", model.max_positions}};
}

}  // namespace

Json to_json(const PlanOptions& request, const Plan& plan) {
  Json options = Json::array();
  for (const PlanOption& option : plan.options) options.push_back(option_json(option));
  Json experts = Json::array();
  for (const ExpertOption& option : plan.experts) experts.push_back(expert_json(option));
  Json recommended = nullptr;
  if (plan.recommended) {
    recommended = {{"option", *plan.recommended},
                   {"preset", plan.options[*plan.recommended].config.preset},
                   {"toml", recommended_toml(request, plan)}};
  }
  return {{"model", model_json(request.model)},
          {"machine", machine_json(request.machine)},
          {"tokens", request.tokens},
          {"weight_bits", request.weights ? Json(nullptr) : Json(request.weight_bits)},
          {"row_dtype", std::string(row_dtype_name(request.row_dtype))},
          {"weight_bytes", plan.weight_bytes},
          {"host_weight_bytes", plan.host_weight_bytes},
          {"experts", experts},
          {"activation_bytes", plan.activation_bytes},
          {"supposed",
           {{"overlap", or_null(request.prediction.overlap)},
            {"coverage", or_null(request.prediction.coverage)},
            {"prefetched_per_miss", PlanPrediction::kPrefetchedPerMiss}}},
          {"options", options},
          {"recommended", recommended},
          {"config", config_to_json(request.config)}};
}

Json catalog_json() {
  Json cards = Json::array();
  for (const Gpu& gpu : gpus()) {
    cards.push_back({{"name", gpu.name},
                     {"memory_bytes", gpu.memory_bytes},
                     {"memory_bandwidth", gpu.memory_bandwidth},
                     {"tensor_flops", gpu.tensor_flops},
                     {"pcie_generation", gpu.pcie_generation},
                     {"pcie_lanes", gpu.pcie_lanes},
                     {"link_bandwidth", gpu.link_bandwidth()}});
  }
  Json models = Json::array();
  for (const ModelShape& model : model_shapes()) models.push_back(model_json(model));
  return {{"gpus", cards}, {"geometries", models}};
}

}  // namespace fasa
