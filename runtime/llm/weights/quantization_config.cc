#include "runtime/llm/weights/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

constexpr std::string_view kRegexMark = "re:";
constexpr size_t kMaxPatterns = 4096;

std::vector<ModulePattern> read_patterns(const JsonFields& fields, const char* key,
                                         const std::string& name) {
  std::vector<ModulePattern> patterns;
  if (!fields.has(key)) return patterns;
  const auto& list = fields.at(key);
  if (!list.is_array() || list.size() > kMaxPatterns) {
    fields.fail(key, fmt::format("a list of at most {} module names", kMaxPatterns));
  }
  for (const auto& entry : list) {
    if (!entry.is_string()) fields.fail(key, "a list of module names");
    patterns.emplace_back(entry.get<std::string>(), fmt::format("{}: {}", name, key));
  }
  return patterns;
}

void require_bits(const JsonFields& fields, const char* key) {
  const int64_t bits = fields.integer(key, 1, 64);
  if (bits != 4 && bits != 8) fields.fail(key, "4 or 8");
}

// Inputs per scale; 0 = the whole row, written as -1 or null.
int64_t read_group_size(const JsonFields& fields) {
  constexpr int64_t kMax = int64_t{1} << 24;
  const int64_t size = fields.integer_or("group_size", -1, kMax, -1);
  return size < 1 ? 0 : size;
}

void read_awq(const JsonFields& fields) {
  const std::string version = fields.text("version").value_or("gemm");
  if (version != "gemm" && version != "GEMM") fields.fail("version", "gemm");
  if (fields.has("bits") && fields.integer("bits", 1, 64) != 4) fields.fail("bits", "4");
  if (!fields.boolean_or("zero_point", true)) fields.fail("zero_point", "true");
}

QuantLayout read_gptq(const JsonFields& fields) {
  if (fields.has("bits")) require_bits(fields, "bits");
  const std::string format = fields.text("checkpoint_format").value_or("gptq");
  if (format == "gptq_v2") return QuantLayout::kGptqV2;
  if (format == "gptq") return QuantLayout::kGptqV1;
  fields.fail("checkpoint_format", "gptq, gptq_v2");
}

void read_bitsandbytes(const JsonFields& fields) {
  if (!fields.boolean_or("load_in_4bit", false) && !fields.boolean_or("_load_in_4bit", false)) {
    fields.fail("load_in_4bit", "true, because only 4-bit bitsandbytes weights are supported");
  }
  const std::string type = fields.text("bnb_4bit_quant_type").value_or("fp4");
  if (type != "nf4" && type != "fp4") fields.fail("bnb_4bit_quant_type", "nf4, fp4");
}

// Activations stay as they are, whatever `activation_scheme` and `input_scale` say.
void read_fp8(const JsonFields& fields, const char* blocks, QuantizationConfig* config) {
  if (fields.text("fmt").value_or("e4m3") != "e4m3") fields.fail("fmt", "e4m3");
  if (!fields.has(blocks)) return;
  const auto& sizes = fields.at(blocks);
  const auto is_size = [](const nlohmann::json& size) {
    return size.is_number_integer() && size >= 1 && size <= 1 << 20;
  };
  if (!sizes.is_array() || sizes.size() != 2 || !is_size(sizes[0]) || !is_size(sizes[1]) ||
      sizes[1].get<int64_t>() % 32 != 0) {
    fields.fail(blocks, "null or [outputs, inputs], such as [128, 128]; inputs a multiple of 32");
  }
  config->fp8_blocks = {sizes[0].get<int64_t>(), sizes[1].get<int64_t>()};
}

QuantizationConfig::Group read_group(const nlohmann::json& json, const std::string& name,
                                     const std::string& key, QuantizationConfig* config) {
  const QuantLayout layout = config->layout;
  const std::string place = fmt::format("quantization_config.config_groups.{}.", key);
  const JsonFields fields(json, name, place);
  QuantizationConfig::Group group;
  group.targets = read_patterns(fields, "targets", name);
  if (fields.has("input_activations") && layout != QuantLayout::kFp8) {
    fields.fail("input_activations", "null, because quantised activations are not supported");
  }
  if (!fields.has("weights"))
    fields.fail("weights", "an object that describes the quantisation of weights");
  const JsonFields weights(fields.at("weights"), name, place + "weights.");
  const std::string type = weights.text("type").value_or("int");
  if (layout == QuantLayout::kPackedMxfp4 || layout == QuantLayout::kFp8) {
    if (type != "float") weights.fail("type", "float");
    if (layout == QuantLayout::kFp8) {
      if (weights.integer_or("num_bits", 1, 64, 8) != 8) weights.fail("num_bits", "8");
      read_fp8(weights, "block_structure", config);
    }
    return group;
  }
  if (type != "int") weights.fail("type", "int");
  require_bits(weights, "num_bits");
  group.bits = static_cast<int>(weights.integer("num_bits", 4, 8));
  group.symmetric = weights.boolean_or("symmetric", true);
  group.group = read_group_size(weights);
  const std::string strategy = weights.text("strategy").value_or("group");
  if (strategy != "group" && strategy != "channel" && strategy != "tensor") {
    weights.fail("strategy", "group, channel, tensor");
  }
  return group;
}

QuantLayout compressed_layout(const JsonFields& fields) {
  const std::string format = fields.text("format").value_or("");
  if (format == "pack-quantized") return QuantLayout::kPackQuantized;
  if (format == "mxfp4-pack-quantized") return QuantLayout::kPackedMxfp4;
  if (format == "float-quantized" || format == "naive-quantized") return QuantLayout::kFp8;
  fields.fail("format", "pack-quantized, mxfp4-pack-quantized, float-quantized");
}

void read_compressed(const JsonFields& fields, const std::string& name,
                     QuantizationConfig* config) {
  config->layout = compressed_layout(fields);
  if (!fields.has("config_groups") || !fields.at("config_groups").is_object() ||
      fields.at("config_groups").empty()) {
    fields.fail("config_groups", "a non-empty object of module groups");
  }
  for (const auto& [key, group] : fields.at("config_groups").items()) {
    config->groups.push_back(read_group(group, name, key, config));
  }
}

}  // namespace

ModulePattern::ModulePattern(const std::string& text, const std::string& where) : text_(text) {
  if (!text.starts_with(kRegexMark)) return;
  regex_ =
      std::make_shared<const text::Regex>(std::string_view(text).substr(kRegexMark.size()), where);
}

bool ModulePattern::matches(const std::string& module) const {
  if (regex_ != nullptr) {
    text::RegexSearch search(*regex_, module);
    search.enter({0, module.size()});
    const auto match = search.next();
    return match && match->begin == 0;
  }
  if (text_.empty()) return false;
  const std::string within = "." + module + ".";
  return within.find("." + text_ + ".") != std::string::npos;
}

bool QuantizationConfig::ignores(const std::string& module) const {
  return std::any_of(ignored.begin(), ignored.end(),
                     [&](const ModulePattern& pattern) { return pattern.matches(module); });
}

const QuantizationConfig::Group* QuantizationConfig::group_of(const std::string& module) const {
  const Group* of_kind = nullptr;
  for (const Group& group : groups) {
    for (const ModulePattern& target : group.targets) {
      if (target.matches(module)) return &group;
      if (target.text() == "Linear" || target.text() == "torch.nn.Linear") of_kind = &group;
    }
  }
  return of_kind;
}

std::optional<QuantizationConfig> QuantizationConfig::parse(const nlohmann::json& config,
                                                            const std::string& name) {
  const char* const key = "quantization_config";
  if (!config.contains(key) || config.at(key).is_null()) return std::nullopt;
  const JsonFields fields(config.at(key), name, "quantization_config.");
  QuantizationConfig result;
  const std::string method = fields.text("quant_method").value_or("");
  if (method == "awq") {
    read_awq(fields);
    result.layout = QuantLayout::kAwq;
    result.group_size = read_group_size(fields);
  } else if (method == "gptq") {
    result.layout = read_gptq(fields);
    result.group_size = read_group_size(fields);
  } else if (method == "compressed-tensors") {
    read_compressed(fields, name, &result);
  } else if (method == "bitsandbytes") {
    read_bitsandbytes(fields);
    result.layout = QuantLayout::kBitsAndBytes;
  } else if (method == "mxfp4") {
    result.layout = QuantLayout::kMxfp4;
  } else if (method == "fp8" || method == "fbgemm_fp8") {
    result.layout = QuantLayout::kFp8;
    read_fp8(fields, "weight_block_size", &result);
  } else {
    fields.fail("quant_method", "awq, gptq, compressed-tensors, bitsandbytes, mxfp4, fp8");
  }
  for (const char* list :
       {"ignore", "ignored_layers", "modules_to_not_convert", "llm_int8_skip_modules"}) {
    for (ModulePattern& pattern : read_patterns(fields, list, name)) {
      result.ignored.push_back(std::move(pattern));
    }
  }
  return result;
}

}  // namespace fasa
