#include "runtime/llm/gguf/gguf_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_architecture.h"
#include "runtime/llm/gguf/gguf_matrix.h"

namespace fasa {
namespace {

std::optional<DType> plain_dtype(GgmlType type) {
  if (type == GgmlType::kF32) return DType::kF32;
  if (type == GgmlType::kF16) return DType::kF16;
  if (type == GgmlType::kBF16) return DType::kBF16;
  return std::nullopt;
}

// Head dimension of query and key matrices whose rows are stored in rotary pairs; 0: rows are in
// the model's order.
int64_t paired_head_dim(const GgufHeader& header, const GgufArchitecture& architecture,
                        std::string_view name) {
  if (!architecture.paired_heads) return 0;
  if (name.find(".attn_q.") == std::string_view::npos &&
      name.find(".attn_k.") == std::string_view::npos) {
    return 0;
  }
  const auto key = [&](std::string_view of) { return fmt::format("{}.{}", architecture.name, of); };
  const int64_t hidden = header.integer(key("embedding_length"), 1, int64_t{1} << 30);
  const int64_t heads = header.integer(key("attention.head_count"), 1, int64_t{1} << 20);
  return header.integer_or(key("attention.key_length"), 1, int64_t{1} << 20, hidden / heads);
}

// Rotation frequencies are skipped: they follow from the config.
bool is_rotary(std::string_view name) {
  return name == "rope_freqs.weight" || name.starts_with("rope_factors_");
}

// Layers of multi-token prediction stand behind the model's own; they are skipped.
bool is_prediction(const GgufHeader& header, const GgufArchitecture& architecture,
                   std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  const auto key = [&](std::string_view of) { return fmt::format("{}.{}", architecture.name, of); };
  const int64_t extra = header.integer_or(key("nextn_predict_layers"), 0, 4096, 0);
  if (extra == 0 || !name.starts_with(kLayer)) return false;
  const int64_t end = header.integer(key("block_count"), 1, int64_t{1} << 30) - extra;
  const std::string number(name.substr(kLayer.size(), name.find('.', kLayer.size())));
  return std::atoll(number.c_str()) >= end;
}

}  // namespace

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ||
         std::filesystem::path(path).extension() == ".gguf";
}

GgufFile::GgufFile(const std::string& path) : file_(path), header_(file_.bytes(), path) {
  const GgufArchitecture& architecture = GgufArchitecture::of(header_);
  for (const auto& [name, tensor] : header_.tensors()) {
    if (is_rotary(name) || is_prediction(header_, architecture, name)) continue;
    const std::string wanted = architecture.model_name(name);
    if (wanted.find('*') != std::string::npos) {
      add_experts(wanted, tensor);
      continue;
    }
    add_name(wanted, tensor);
    const int64_t head_dim = paired_head_dim(header_, architecture, name);
    if (head_dim > 0 && (head_dim % 2 != 0 || tensor.shape[0] % head_dim != 0)) {
      throw InputError(
          fmt::format("{}: tensor {} has {} rows; allowed: a multiple of {}, the rows of a head",
                      header_.name(), name, tensor.shape[0], head_dim));
    }
    if (tensor.shape.size() == 1) {
      const bool is_norm = name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight");
      const float base = architecture.norms_have_base && is_norm ? 1.0f : 0.0f;
      if (head_dim > 0 || base != 0) add_vector(wanted, tensor, head_dim, base);
    } else if (tensor.shape.size() == 2) {  // require() reports other ranks
      add_matrix(wanted, tensor, head_dim);
    }
  }
}

void GgufFile::add_name(const std::string& name, const GgufTensor& tensor) {
  if (!names_.emplace(name, &tensor).second) {
    throw InputError(fmt::format("{}: tensor {} occurs twice", header_.name(), name));
  }
}

void GgufFile::add_matrix(const std::string& name, const GgufTensor& tensor, int64_t head_dim) {
  if (plain_dtype(tensor.block->type) && head_dim == 0) return;  // used as stored
  if (!tensor.block->is_read()) return;                          // require() reports it
  matrices_[name] =
      make_gguf_matrix(tensor, header_.data().data() + tensor.begin, {.head_dim = head_dim});
}

void GgufFile::add_experts(const std::string& name, const GgufTensor& tensor) {
  const size_t own_dims = name.ends_with(".bias") ? 1 : 2;
  if (tensor.shape.size() != own_dims + 1) {
    throw InputError(fmt::format(
        "{}: tensor {} has {} dimensions; expected {} of an expert, and one for the experts",
        header_.name(), name, tensor.shape.size(), own_dims));
  }
  const auto count = static_cast<uint64_t>(tensor.shape[0]);
  if (experts_.size() + count > kMaxGgufTensors) {
    throw InputError(fmt::format("{}: too many matrices of experts; allowed: {}", header_.name(),
                                 kMaxGgufTensors));
  }
  const size_t star = name.find('*');
  for (uint64_t i = 0; i < count; ++i) {
    const std::string own = fmt::format("{}{}{}", name.substr(0, star), i, name.substr(star + 1));
    const uint64_t bytes = tensor.bytes / count;  // rows are whole blocks
    experts_.push_back({.name = tensor.name,
                        .block = tensor.block,
                        .shape = {tensor.shape.begin() + 1, tensor.shape.end()},
                        .begin = tensor.begin + i * bytes,
                        .bytes = bytes});
    add_name(own, experts_.back());
    if (own_dims == 2) add_matrix(own, experts_.back(), 0);
  }
}

void GgufFile::add_vector(const std::string& name, const GgufTensor& tensor, int64_t head_dim,
                          float base) {
  const auto dtype = plain_dtype(tensor.block->type);
  if (!dtype) return;  // require() reports it
  WeightView view;
  view.dtype = *dtype;
  view.data = header_.data().data() + tensor.begin;
  std::vector<float> values(static_cast<size_t>(tensor.shape[0]));
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    float& value = values[static_cast<size_t>(i)];
    view.read(head_dim > 0 ? GgufRows{head_dim}.in_file(i) : i, 1, &value);
    value -= base;
  }
  vectors_[name] = std::move(values);
}

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : names_) all.push_back(name);
  return all;
}

WeightView GgufFile::require(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    throw InputError(fmt::format("{}: tensor {} is missing; the metadata expect it with shape [{}]",
                                 source(), name, fmt::join(shape, ", ")));
  }
  const GgufTensor& tensor = *found->second;
  header_.require_read(tensor);
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    throw InputError(fmt::format("{}: tensor {} has shape [{}], but the metadata expect [{}]",
                                 source(), name, fmt::join(tensor.shape, ", "),
                                 fmt::join(shape, ", ")));
  }
  file_.require_whole();
  WeightView view;
  view.shape = tensor.shape;
  if (const auto vector = vectors_.find(name); vector != vectors_.end()) {
    view.data = reinterpret_cast<const std::byte*>(vector->second.data());
    return view;
  }
  if (const auto matrix = matrices_.find(name); matrix != matrices_.end()) {
    view.packed = matrix->second.get();
    return view;
  }
  const auto dtype = plain_dtype(tensor.block->type);
  if (!dtype) {
    throw InputError(fmt::format("{}: tensor {} has type {}; allowed for a vector: F32, F16, BF16",
                                 source(), name, tensor.block->name));
  }
  view.dtype = *dtype;
  view.data = header_.data().data() + tensor.begin;
  return view;
}

}  // namespace fasa
