#include "runtime/llm/gguf/gguf_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_keys.h"

namespace fasa {
namespace {

constexpr std::string_view kLayer = "blk.";
constexpr std::string_view kGateUp = ".gate_up_proj";

std::optional<DType> plain_dtype(GgmlType type) {
  if (type == GgmlType::kF32) return DType::kF32;
  if (type == GgmlType::kF16) return DType::kF16;
  if (type == GgmlType::kBF16) return DType::kBF16;
  return std::nullopt;
}

// Rotation frequencies are skipped: they follow from the config.
bool is_rotary(std::string_view name) {
  return name == "rope_freqs.weight" || name.starts_with("rope_factors_") ||
         name.find(".attn_rot_embd.") != std::string_view::npos;
}

int64_t layer_of(std::string_view name) {
  if (!name.starts_with(kLayer)) return -1;
  return std::atoll(std::string(name.substr(kLayer.size(), 12)).c_str());
}

// "blk.3.attn_q.weight" -> "attn_q"
std::string_view part_of_layer(std::string_view name) {
  if (!name.starts_with(kLayer)) return "";
  const size_t begin = name.find('.', kLayer.size()) + 1, end = name.rfind('.');
  return begin == 0 || end <= begin ? "" : name.substr(begin, end - begin);
}

// Shapes without leading lengths of 1: files leave them out.
std::span<const int64_t> significant(std::span<const int64_t> shape) {
  while (shape.size() > 1 && shape.front() == 1) shape = shape.subspan(1);
  return shape;
}

}  // namespace

GgufFile::GgufFile(const std::string& path)
    : files_(path),
      architecture_(GgufArchitecture::of(header())),
      layers_(architecture_.layers(header())) {
  const GgufKeys keys(header(), architecture_.name);
  heads_ = keys.integer("attention.head_count");
  head_dim_ = keys.integer_or("attention.key_length", keys.integer("embedding_length") / heads_);
  const ModelFamily& family = architecture_.family();
  const bool separate = family.names.qkv.empty() && family.linear == LinearKind::kNone;
  for (const auto& [name, tensor] : header().tensors()) {
    if (is_rotary(name) || (layer_of(name) >= layers_ && !family.mtp_head)) continue;
    const std::string wanted = architecture_.model_name(name);
    if (separate && part_of_layer(name) == "attn_qkv") {
      add_qkv(name, tensor);
    } else if (wanted.find('*') != std::string::npos) {
      add_stacked(wanted, tensor);
    } else {
      const bool is_norm = name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight");
      const bool has_base = architecture_.norms_have_base && is_norm && !wanted.starts_with("v.");
      add(wanted, tensor, rows_of(name), has_base ? family.norm_base : 0.0f);
    }
  }
}

void GgufFile::fail(std::string_view tensor, std::string_view what) const {
  throw InputError(fmt::format("{}: tensor {} {}", source(), tensor, what));
}

GgufRows GgufFile::rows_of(std::string_view name) const {
  const std::string_view part = part_of_layer(name);
  const bool rotates = part == "attn_q" || part == "attn_k";
  if (architecture_.paired_heads && rotates) return {.head_dim = head_dim_};
  const bool by_head = architecture_.family().qkv_layout == QkvLayout::kByHead;
  if (by_head && part == "attn_qkv") return {.head_dim = head_dim_, .stacked_heads = heads_};
  return {};
}

void GgufFile::add(const std::string& name, const GgufTensor& tensor, const GgufRows& rows,
                   float base) {
  if (!names_.emplace(name, &tensor).second) fail(name, "occurs twice");
  if (rows.head_dim > 0) {
    const int64_t count = tensor.shape[0];
    const int64_t heads = rows.stacked_heads;
    const bool fits = heads > 0 ? count == 3 * heads * rows.head_dim : count % rows.head_dim == 0;
    if (!fits || rows.head_dim % 2 != 0) {
      fail(name, fmt::format("has {} rows; allowed: {} {}, the rows of a head", count,
                             heads > 0 ? fmt::format("3 x {} x", heads) : "a multiple of",
                             rows.head_dim));
    }
  }
  if (tensor.shape.size() == 1) {
    if (rows.head_dim > 0 || base != 0) add_vector(name, tensor, rows, base);
  } else if (tensor.shape.size() == 2) {  // require() reports other ranks
    if (plain_dtype(tensor.block->type) && rows.head_dim == 0) return;  // used as stored
    if (!tensor.block->is_read()) return;                               // require() reports it
    matrices_[name] = make_gguf_matrix(tensor, rows);
  }
}

void GgufFile::add_vector(const std::string& name, const GgufTensor& tensor, const GgufRows& rows,
                          float base) {
  const auto dtype = plain_dtype(tensor.block->type);
  if (!dtype) return;  // require() reports it
  WeightView view;
  view.dtype = *dtype;
  view.data = tensor.data;
  std::vector<float> values(static_cast<size_t>(tensor.shape[0]));
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    float& value = values[static_cast<size_t>(i)];
    view.read(rows.in_file(i), 1, &value);
    value -= base;
  }
  vectors_[name] = std::move(values);
}

// Rows are whole blocks.
const GgufTensor& GgufFile::slice(const GgufTensor& tensor, int64_t first, int64_t rows) {
  if (slices_.size() >= kMaxGgufTensors) {
    throw InputError(
        fmt::format("{}: too many matrices of experts; allowed: {}", source(), kMaxGgufTensors));
  }
  const uint64_t each = tensor.bytes / static_cast<uint64_t>(tensor.shape[0]);
  GgufTensor& part = slices_.emplace_back(tensor);
  part.shape[0] = rows;
  part.bytes = each * static_cast<uint64_t>(rows);
  part.data += each * static_cast<uint64_t>(first);
  return part;
}

void GgufFile::add_stacked(const std::string& name, const GgufTensor& tensor) {
  const bool norms = name.find(".norms.") != std::string::npos;
  const size_t own_dims = norms || name.ends_with(".bias") ? 1 : 2;
  if (tensor.shape.size() != own_dims + 1) {
    fail(name, fmt::format("has {} dimensions; expected {} of each part, and one for their number",
                           tensor.shape.size(), own_dims));
  }
  const TensorNames& names = architecture_.family().names;
  const bool beside = !names.beside_norm.empty();  // the model has them in one tensor too
  const size_t star = name.find('*'), fused = beside ? std::string::npos : name.find(kGateUp);
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    slice(tensor, i, 1);
    GgufTensor& own = slices_.back();
    own.shape.erase(own.shape.begin());
    const std::string stem = fmt::format("{}{}", name.substr(0, star), i);
    if (fused == std::string::npos) {
      add(stem + name.substr(star + 1), own);
      continue;
    }
    const std::string end = name.substr(fused + kGateUp.size());
    const int64_t half = own.shape[0] / 2;
    if (own.shape[0] % 2 != 0) fail(name, "has an odd number of rows per expert");
    add(fmt::format("{}.{}{}", stem, names.expert_gate, end), slice(own, 0, half));
    add(fmt::format("{}.{}{}", stem, names.expert_up, end), slice(own, half, half));
  }
}

void GgufFile::add_qkv(const std::string& name, const GgufTensor& tensor) {
  const int64_t queries = heads_ * head_dim_, rest = tensor.shape[0] - queries;
  if (rest <= 0 || rest % 2 != 0) {
    fail(name, fmt::format("has {} rows; allowed: {} of queries, and as many keys as values",
                           tensor.shape[0], queries));
  }
  constexpr std::string_view kStacked = "attn_qkv";
  const size_t at = name.find(kStacked);
  const auto part = [&](std::string_view own, int64_t first, int64_t rows) {
    std::string file = name;
    file.replace(at, kStacked.size(), own);
    add(architecture_.model_name(file), slice(tensor, first, rows), rows_of(file));
  };
  part("attn_q", 0, queries);
  part("attn_k", queries, rest / 2);
  part("attn_v", queries + rest / 2, rest / 2);
}

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : names_) all.push_back(name);
  return all;
}

WeightView GgufFile::require(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    fail(name,
         fmt::format("is missing; the metadata expect it with shape [{}]", fmt::join(shape, ", ")));
  }
  const GgufTensor& tensor = *found->second;
  header().require_read(tensor);
  const auto expected = significant(shape), given = significant(tensor.shape);
  if (!std::equal(expected.begin(), expected.end(), given.begin(), given.end())) {
    fail(name, fmt::format("has shape [{}], but the metadata expect [{}]",
                           fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
  }
  files_.require_whole(tensor);
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
    fail(name,
         fmt::format("has type {}; allowed for a vector: F32, F16, BF16", tensor.block->name));
  }
  view.dtype = *dtype;
  view.data = tensor.data;
  return view;
}

}  // namespace fasa
