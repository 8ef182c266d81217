#include "runtime/llm/gguf/gguf_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_matrix.h"

namespace fasa {
namespace {

struct NamePair {
  std::string_view file;
  std::string_view model;
};
constexpr NamePair kTop[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr NamePair kInLayer[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name of none of these keeps
// its text behind "model.", where no config asks for it.
std::string model_name(std::string_view name) {
  const std::string other = fmt::format("model.{}", name);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return other;
  const std::string_view stem = name.substr(0, dot);
  const std::string_view kind = name.substr(dot);
  for (const NamePair& pair : kTop) {
    if (stem == pair.file) return fmt::format("{}{}", pair.model, kind);
  }
  constexpr std::string_view kLayer = "blk.";
  if (!stem.starts_with(kLayer)) return other;
  const size_t part = stem.find('.', kLayer.size());
  if (part == std::string_view::npos) return other;
  const std::string_view layer = stem.substr(kLayer.size(), part - kLayer.size());
  for (const NamePair& pair : kInLayer) {
    if (stem.substr(part + 1) == pair.file) {
      return fmt::format("model.layers.{}.{}{}", layer, pair.model, kind);
    }
  }
  return other;
}

std::optional<DType> plain_dtype(GgmlType type) {
  if (type == GgmlType::kF32) return DType::kF32;
  if (type == GgmlType::kF16) return DType::kF16;
  if (type == GgmlType::kBF16) return DType::kBF16;
  return std::nullopt;
}

// Of matrices of queries and keys, whose rows the llama architecture keeps in rotary pairs; 0: as
// the model has them.
int64_t paired_head_dim(const GgufHeader& header, std::string_view name) {
  if (header.text("general.architecture").value_or("") != "llama") return 0;
  if (name.find(".attn_q.") == std::string_view::npos &&
      name.find(".attn_k.") == std::string_view::npos) {
    return 0;
  }
  const int64_t hidden = header.integer("llama.embedding_length", 1, int64_t{1} << 30);
  const int64_t heads = header.integer("llama.attention.head_count", 1, int64_t{1} << 20);
  return header.integer_or("llama.attention.key_length", 1, int64_t{1} << 20, hidden / heads);
}

}  // namespace

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ||
         std::filesystem::path(path).extension() == ".gguf";
}

GgufFile::GgufFile(const std::string& path) : file_(path), header_(file_.bytes(), path) {
  const std::byte* const data = header_.data().data();
  for (const auto& [name, tensor] : header_.tensors()) {
    if (name == "rope_freqs.weight") continue;  // the config says what it says
    const std::string wanted = model_name(name);
    if (!names_.emplace(wanted, &tensor).second) {
      throw InputError(fmt::format("{}: tensor {} is there twice", header_.name(), wanted));
    }
    const int64_t head_dim = paired_head_dim(header_, name);
    if (tensor.shape.size() == 1) {
      if (head_dim > 0) add_vector(wanted, tensor, head_dim);
      continue;
    }
    if (tensor.shape.size() != 2) continue;  // require() says so
    if (head_dim > 0 && (head_dim % 2 != 0 || tensor.shape[0] % head_dim != 0)) {
      throw InputError(fmt::format("{}: tensor {} has {} rows, no multiple of a head's {}",
                                   header_.name(), name, tensor.shape[0], head_dim));
    }
    if (plain_dtype(tensor.block->type) && head_dim == 0) continue;
    matrices_[wanted] = make_gguf_matrix(tensor, data + tensor.begin, {.head_dim = head_dim});
  }
}

void GgufFile::add_vector(const std::string& name, const GgufTensor& tensor, int64_t head_dim) {
  const auto dtype = plain_dtype(tensor.block->type);
  if (!dtype || head_dim % 2 != 0 || tensor.shape[0] % head_dim != 0) return;
  WeightView view;
  view.dtype = *dtype;
  view.data = header_.data().data() + tensor.begin;
  std::vector<float> values(static_cast<size_t>(tensor.shape[0]));
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    view.read(GgufRows{head_dim}.in_file(i), 1, &values[static_cast<size_t>(i)]);
  }
  reordered_[name] = std::move(values);
}

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : names_) all.push_back(name);
  return all;
}

WeightView GgufFile::require(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    throw InputError(
        fmt::format("{}: tensor {} is missing; the metadata asks for it with shape "
                    "[{}]",
                    source(), name, fmt::join(shape, ", ")));
  }
  const GgufTensor& tensor = *found->second;
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    throw InputError(fmt::format("{}: tensor {} has shape [{}], but the metadata says [{}]",
                                 source(), name, fmt::join(tensor.shape, ", "),
                                 fmt::join(shape, ", ")));
  }
  file_.require_whole();
  WeightView view;
  view.shape = tensor.shape;
  if (const auto vector = reordered_.find(name); vector != reordered_.end()) {
    view.data = reinterpret_cast<const std::byte*>(vector->second.data());
    return view;
  }
  if (const auto matrix = matrices_.find(name); matrix != matrices_.end()) {
    view.packed = matrix->second.get();
    return view;
  }
  const auto dtype = plain_dtype(tensor.block->type);
  if (!dtype) {
    throw InputError(
        fmt::format("{}: tensor {} is of type {}; allowed for a vector: F32, F16, BF16", source(),
                    name, tensor.block->name));
  }
  view.dtype = *dtype;
  view.data = header_.data().data() + tensor.begin;
  return view;
}

}  // namespace fasa
