#include "runtime/llm/weights/quantized_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/llm/weights/tensor_parts.h"

namespace fasa {
namespace {

// Suffixes of a matrix's first tensor and of its other tensors.
struct LayoutNames {
  std::string_view first;
  std::vector<std::string_view> others;
  // Tensors of another dtype with the first one's suffix are not quantised. Empty: none are.
  std::string_view dtype = {};
};

// Scales of a cache in float8, which is not used.
bool is_cache_scale(std::string_view name) {
  return name.ends_with(".k_scale") || name.ends_with(".v_scale") || name.ends_with(".q_scale");
}

constexpr std::string_view kFp8 = "F8_E4M3";

// `stacked`: of experts in one tensor, whose names have no ".weight".
LayoutNames names_of(QuantLayout layout, bool stacked = false) {
  switch (layout) {
    case QuantLayout::kAwq:
    case QuantLayout::kGptqV1:
    case QuantLayout::kGptqV2:
      return {".qweight", {".qzeros", ".scales", ".g_idx"}};
    case QuantLayout::kPackQuantized:
    case QuantLayout::kPackedMxfp4:
      return {".weight_packed",
              {".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx"}};
    case QuantLayout::kBitsAndBytes:
      return {".weight.quant_map",
              {".weight", ".weight.absmax", ".weight.nested_absmax", ".weight.nested_quant_map",
               ".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"}};
    case QuantLayout::kMxfp4:
      return {"_blocks", {"_scales"}};
    case QuantLayout::kFp8:
      if (stacked) return {"", {"_scale_inv", "_scale", "_activation_scale"}, kFp8};
      return {".weight",
              {".weight_scale", ".weight_scale_inv", ".input_scale", ".activation_scale"},
              kFp8};
  }
  return {};
}

std::unique_ptr<PackedTensor> read_matrix(const TensorParts& parts,
                                          const QuantizationConfig& config, bool stacked) {
  switch (config.layout) {
    case QuantLayout::kAwq:
      return read_awq(parts, config.group_size);
    case QuantLayout::kGptqV1:
      return read_gptq(parts, GptqVersion::kV1, config.group_size);
    case QuantLayout::kGptqV2:
      return read_gptq(parts, GptqVersion::kV2, config.group_size);
    case QuantLayout::kPackQuantized: {
      const QuantizationConfig::Group* group = config.group_of(parts.stem());
      if (group == nullptr)
        parts.fail(".weight_packed", "is not among the targets of any of config_groups");
      return read_pack_quantized(
          parts, {.bits = group->bits, .symmetric = group->symmetric, .group = group->group});
    }
    case QuantLayout::kPackedMxfp4:
      return read_mxfp4(parts, {.blocks = ".weight_packed", .scales = ".weight_scale"});
    case QuantLayout::kBitsAndBytes:
      return read_bitsandbytes(parts);
    case QuantLayout::kMxfp4:
      return read_mxfp4(parts, {.blocks = "_blocks", .scales = "_scales"});
    case QuantLayout::kFp8:
      if (!stacked) return read_fp8(parts, {.block = config.fp8_blocks});
      return read_fp8(parts, {.block = config.fp8_blocks,
                              .stacked = true,
                              .weights = "",
                              .scale_inv = "_scale_inv",
                              .scale = "_scale"});
  }
  return nullptr;
}

}  // namespace

QuantizedFiles::QuantizedFiles(std::unique_ptr<WeightFiles> files, const QuantizationConfig& config)
    : files_(std::move(files)) {
  const LayoutNames layout = names_of(config.layout);
  for (const std::string& name : files_->names()) {
    if (config.layout == QuantLayout::kFp8 && is_cache_scale(name)) parts_.insert(name);
    if (name.ends_with(layout.first) &&
        (layout.dtype.empty() || files_->raw(name).dtype == layout.dtype)) {
      add(name.substr(0, name.size() - layout.first.size()), config, false);
    } else if (config.layout == QuantLayout::kFp8 && is_stacked_fp8(name)) {
      add(name, config, true);
    }
  }
  if (matrices_.empty()) {
    throw InputError(fmt::format(
        "{}: no tensor {}ends in {}, but quantization_config says that weights are "
        "quantised; do the config and the files belong together?",
        source(), layout.dtype.empty() ? "" : fmt::format("of {} ", layout.dtype), layout.first));
  }
}

bool QuantizedFiles::is_stacked_fp8(const std::string& name) const {
  return files_->raw(name).dtype == kFp8 &&
         (files_->has(name + "_scale_inv") || files_->has(name + "_scale"));
}

void QuantizedFiles::add(const std::string& stem, const QuantizationConfig& config, bool stacked) {
  const TensorParts parts(*files_, stem);
  const LayoutNames layout = names_of(config.layout, stacked);
  if (layout.dtype.empty() && config.ignores(stem)) {
    parts.fail(layout.first, "is quantised, but quantization_config excludes the module");
  }
  // Names of experts' matrices have no ".weight".
  const bool whole = stem.ends_with(".weight");
  matrices_[whole ? stem : stem + ".weight"] = read_matrix(parts, config, stacked);
  parts_.insert(stem + std::string(layout.first));
  for (const std::string_view other : layout.others) parts_.insert(stem + std::string(other));
}

bool QuantizedFiles::has(const std::string& name) const {
  return matrices_.contains(name) || (files_->has(name) && !parts_.contains(name));
}

std::vector<std::string> QuantizedFiles::names() const {
  std::vector<std::string> all;
  for (std::string& name : files_->names()) {
    if (!parts_.contains(name)) all.push_back(std::move(name));
  }
  for (const auto& [name, matrix] : matrices_) all.push_back(name);
  return all;
}

WeightView QuantizedFiles::require(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = matrices_.find(name);
  if (found == matrices_.end()) return files_->require(name, shape);
  const PackedTensor& matrix = *found->second;
  if (!std::equal(shape.begin(), shape.end(), matrix.shape().begin(), matrix.shape().end())) {
    throw InputError(
        fmt::format("{}: matrix {} has shape [{}] after unpacking, but config.json expects [{}]",
                    source(), name, fmt::join(matrix.shape(), ", "), fmt::join(shape, ", ")));
  }
  WeightView view;
  view.dtype = DType::kF32;
  view.shape = matrix.shape();
  view.packed = &matrix;
  return view;
}

}  // namespace fasa
