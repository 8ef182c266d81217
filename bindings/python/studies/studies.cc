#include "bindings/python/studies/module_parts.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>

#include "bindings/python/core/config.h"
#include "bindings/python/core/json_value.h"
#include "runtime/base/units.h"
#include "runtime/capture/calibration.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/fasa.hpp"
#include "runtime/io/input_file.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/model_memory.h"
#include "runtime/llm/config/model_shape.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "runtime/plan/plan_json.h"
#include "runtime/plan/planner.h"

namespace fasa::python {
namespace {

CalibrationProgress progress_of(const nb::object& callback) {
  if (callback.is_none()) return {};
  return [callback](CalibrationPhase phase, int64_t done, int64_t total) {
    const nb::gil_scoped_acquire acquire;
    callback(phase == CalibrationPhase::kRunning ? "running" : "ranking", done, total);
  };
}

struct CalibrateArguments {
  std::string model;
  std::optional<std::vector<std::string>> texts;
  std::string objective = "distant_attention";
  std::optional<int64_t> tokens;
  std::optional<int> window;
  int queries = 96;
  uint64_t seed = 1;
  bool probes = true;
};

CalibrationOptions options_of(const CalibrateArguments& given, const Config& config,
                              const ModelConfig& model) {
  CalibrationOptions options;
  options.objective = parse_objective(given.objective);
  options.tokens = given.tokens.value_or(std::min(options.tokens, model.max_positions));
  options.window = given.window;
  options.queries = given.queries;
  options.seed = given.seed;
  options.probes = given.probes;
  options.tip_chunks = config.selection.tip_chunks.value_or(0);
  options.sinks = config.selection.sinks;
  options.recent = config.selection.recent;
  options.validate(model.geometry(), model.max_positions);
  return options;
}

FcMap calibrate_folder(const CalibrateArguments& given, const PyConfig* config,
                       const nb::object& progress) {
  const Config settings = config == nullptr ? Config() : config->config();
  const CalibrationProgress report = progress_of(progress);
  const nb::gil_scoped_release release;
  const ModelConfig model_config = ModelConfig::load(given.model);
  const CalibrationOptions options = options_of(given, settings, model_config);
  const auto tokenizer = open_tokenizer(given.model);
  const auto paths = given.texts ? *given.texts : default_calibration_texts(given.model);
  const auto text = read_calibration_texts(paths, tokenizer.get(), options.tokens);
  const auto device = open_device(settings.device_options());
  Model model = Model::load(given.model, *device, std::nullopt, settings.weights);
  return calibrate(model, text, options, report);
}

std::optional<uint64_t> bytes_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const auto bytes = parse_bytes(*text);
  if (!bytes || *bytes == 0) {
    throw UsageError(fmt::format("vram = \"{}\": allowed: a size above 0, such as \"16GiB\"{}",
                                 *text, missing_unit_hint(*text)));
  }
  return bytes;
}

std::optional<double> rate_of(const char* name, const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const auto rate = parse_rate(*text);
  if (!rate) {
    throw UsageError(
        fmt::format("{} = \"{}\": allowed: a rate above 0, such as \"16GB/s\"", name, *text));
  }
  return rate;
}

PlanOptions request_for(const std::optional<std::string>& model,
                        const std::optional<std::string>& geometry) {
  if (model.has_value() == geometry.has_value()) {
    throw UsageError("plan: give either model (a folder) or geometry (a name)");
  }
  PlanOptions request;
  if (geometry) {
    request.model = find_model_shape(*geometry);
    return request;
  }
  const ModelConfig config = ModelConfig::load(*model);
  request.model = model_shape(config, *model);
  request.row_dtype = config.row_dtype();
  return request;
}

struct PlanArguments {
  std::optional<std::string> model, geometry, vram, memory_bandwidth, link_bandwidth;
  std::optional<int64_t> tokens;
  std::optional<int> weight_bits;
};

PlannedWeights planned_weights(const PlanOptions& request, const std::string& folder) {
  const ModelConfig model = ModelConfig::load(folder);
  const int64_t chunk =
      std::min<int64_t>(request.prefill_chunk.value_or(kMinPrefillChunk), request.tokens);
  const PanelOrder order =
      request.machine.traits.model_calls ? PanelOrder::kPlain : PanelOrder::kPacked;
  const ModelMemory memory = model_memory(folder, model, {}, request.config.weights, chunk, order);
  return {.total = memory.weights.total,
          .layers = memory.weights.layers,
          .head = memory.weights.head,
          .activations = memory.activations,
          .activations_per_token = memory.activations_per_token,
          .host = memory.weights.host,
          .experts = memory.weights.experts,
          .chosen = memory.weights.chosen};
}

nlohmann::json plan_of(const PlanArguments& given, const Config& config) {
  constexpr int64_t kUsualTokens = 131072;
  PlanOptions request = request_for(given.model, given.geometry);
  request.config = config;
  request.row_dtype = config.placement.row_dtype.value_or(request.row_dtype);
  request.tokens = given.tokens.value_or(std::min(request.model.max_positions, kUsualTokens));
  const int bits = given.weight_bits.value_or(4);
  if (bits != 16 && bits != 8 && bits != 4) {
    throw UsageError(fmt::format("weight_bits = {}: allowed: 16, 8, 4, None", bits));
  }
  request.weight_bits = bits;
  request.machine = make_plan_machine(
      config, {.vram = bytes_of(given.vram),
               .memory_bandwidth = rate_of("memory_bandwidth", given.memory_bandwidth),
               .link_bandwidth = rate_of("link_bandwidth", given.link_bandwidth)});
  if (!given.weight_bits && given.model) request.weights = planned_weights(request, *given.model);
  config.validate_for(request.model.geometry);
  return to_json(request, make_plan(request));
}

// The rope scaling in a map's fingerprint, in the format of the model folder's reader. For kinds of
// scaling that the reader does not know: all parameters in order.
std::string rope_scaling_text(const nb::dict& parameters, int64_t max_positions) {
  const nlohmann::json rope = to_json(parameters, "rope_parameters");
  nlohmann::json config = {{"model_type", "llama"},
                           {"vocab_size", 1},
                           {"hidden_size", 2},
                           {"intermediate_size", 1},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 1},
                           {"max_position_embeddings", max_positions}};
  config["rope_parameters"] = rope;
  config["rope_parameters"].erase("partial_rotary_factor");
  if (rope.contains("long_factor")) config["head_dim"] = 2 * rope["long_factor"].size();
  try {
    return ModelConfig::parse(config.dump(), "rope_parameters").rope.scaling_text();
  } catch (const InputError&) {
    return rope.dump();
  }
}

void add_calibration_parts(nb::module_& module) {
  nb::class_<CalibrationData>(module, "_CalibrationData")
      .def_ro("ids", &CalibrationData::ids)
      .def_ro("positions", &CalibrationData::positions)
      .def_ro("probes", &CalibrationData::probes)
      .def_prop_ro("hash", &CalibrationData::hash);
  module.def(
      "calibration_data",
      [](const std::vector<int32_t>& text, int64_t tokens, int queries, bool probes,
         uint64_t seed) {
        return make_calibration_data(
            text, {.tokens = tokens, .queries = queries, .probes = probes, .seed = seed});
      },
      nb::arg("text"), nb::kw_only(), nb::arg("tokens"), nb::arg("queries"), nb::arg("probes"),
      nb::arg("seed"));
  module.def("default_calibration_window", default_calibration_window, nb::arg("tokens"),
             nb::arg("sinks"), nb::arg("recent"));
  module.def("default_calibration_texts", default_calibration_texts, nb::arg("model"));
  // Reads a prompt or text file with the command's rules.
  module.def(
      "read_prompt",
      [](const std::string& path) {
        std::string bytes;
        {
          const nb::gil_scoped_release release;  // reading a pipe may block
          bytes = read_file(path, kPromptFile);
        }
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("path"));
  module.def("rope_scaling_text", rope_scaling_text, nb::arg("parameters"),
             nb::arg("max_positions"));
}

void add_plan(nb::module_& module) {
  using Text = const std::optional<std::string>&;
  module.def(
      "plan",
      [](Text model, Text geometry, const PyConfig* config, std::optional<int64_t> tokens,
         std::optional<int> weight_bits, Text vram, Text memory_bandwidth, Text link_bandwidth) {
        const PlanArguments given{model,          geometry, vram,       memory_bandwidth,
                                  link_bandwidth, tokens,   weight_bits};
        nlohmann::json plan;
        {
          const Config settings = config == nullptr ? Config() : config->config();
          const nb::gil_scoped_release release;
          plan = plan_of(given, settings);
        }
        return nb::cast<nb::dict>(to_python(plan));
      },
      nb::arg("model") = nb::none(), nb::kw_only(), nb::arg("geometry") = nb::none(),
      nb::arg("config").none() = nb::none(), nb::arg("tokens") = nb::none(),
      nb::arg("weight_bits") = nb::none(), nb::arg("vram") = nb::none(),
      nb::arg("memory_bandwidth") = nb::none(), nb::arg("link_bandwidth") = nb::none(),
      "Predicts which presets fit a machine and how fast they would be, without loading the "
      "weights. Returns the object of `fasa plan --json`.");
}

}  // namespace

void add_studies(nb::module_& module) {
  module.def(
      "calibrate",
      [](const std::string& model, const std::optional<std::vector<std::string>>& texts,
         const PyConfig* config, const std::string& objective, std::optional<int64_t> tokens,
         std::optional<int> window, int queries, uint64_t seed, bool probes,
         const nb::object& progress) {
        return calibrate_folder({model, texts, objective, tokens, window, queries, seed, probes},
                                config, progress);
      },
      nb::arg("model"), nb::arg("texts") = nb::none(), nb::kw_only(),
      nb::arg("config").none() = nb::none(), nb::arg("objective") = "distant_attention",
      nb::arg("tokens") = nb::none(), nb::arg("window") = nb::none(), nb::arg("queries") = 96,
      nb::arg("seed") = 1, nb::arg("probes") = true, nb::arg("progress") = nb::none(),
      "Makes the FC map of a model that `fasa generate` can run. Calls progress(phase, done, "
      "total). For other models use fasa.transformers.calibrate.");
  add_calibration_parts(module);
  add_plan(module);
}

}  // namespace fasa::python
