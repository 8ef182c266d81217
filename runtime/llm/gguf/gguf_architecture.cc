#include "runtime/llm/gguf/gguf_architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_names.h"

namespace fasa {
namespace {

constexpr GgufExperts kNormalised = GgufExperts::kNormalised;
constexpr GgufExperts kPlain = GgufExperts::kPlain;

constexpr std::array kArchitectures = {
    GgufArchitecture{.name = "llama", .model_type = "llama", .paired_heads = true},
    GgufArchitecture{
        .name = "llama", .model_type = "mixtral", .experts = kNormalised, .paired_heads = true},
    GgufArchitecture{.name = "mistral3", .model_type = "ministral3", .paired_heads = true},
    GgufArchitecture{.name = "qwen2", .model_type = "qwen2"},
    GgufArchitecture{.name = "qwen2moe", .model_type = "qwen2_moe", .experts = kPlain},
    GgufArchitecture{.name = "qwen3", .model_type = "qwen3"},
    GgufArchitecture{.name = "qwen3moe", .model_type = "qwen3_moe", .experts = kNormalised},
    GgufArchitecture{.name = "qwen35", .model_type = "qwen3_5_text", .norms_have_base = true},
    GgufArchitecture{.name = "qwen35moe",
                     .model_type = "qwen3_5_moe_text",
                     .experts = kNormalised,
                     .norms_have_base = true},
    GgufArchitecture{.name = "qwen3next",
                     .model_type = "qwen3_next",
                     .experts = kNormalised,
                     .norms_have_base = true},
    GgufArchitecture{.name = "gpt-oss", .model_type = "gpt_oss", .experts = kNormalised},
    GgufArchitecture{.name = "granite", .model_type = "granite", .paired_heads = true},
    GgufArchitecture{.name = "olmo2", .model_type = "olmo2"},
    GgufArchitecture{.name = "exaone4", .model_type = "exaone4"},
    GgufArchitecture{.name = "glm4", .model_type = "glm4"},
    GgufArchitecture{.name = "glm4moe", .model_type = "glm4_moe", .experts = kNormalised},
    GgufArchitecture{.name = "cohere2", .model_type = "cohere2"},
    GgufArchitecture{.name = "seed_oss", .model_type = "seed_oss"},
    GgufArchitecture{.name = "starcoder2", .model_type = "starcoder2"},
    GgufArchitecture{.name = "smollm3", .model_type = "smollm3", .paired_heads = true},
    GgufArchitecture{.name = "phi2", .model_type = "phi"},
    GgufArchitecture{.name = "phi3", .model_type = "phi3"},
    GgufArchitecture{.name = "gemma2", .model_type = "gemma2", .norms_have_base = true},
    GgufArchitecture{.name = "gemma3", .model_type = "gemma3_text", .norms_have_base = true},
    GgufArchitecture{.name = "gemma4", .model_type = "gemma4_text"},
    GgufArchitecture{.name = "gemma4", .model_type = "gemma4_text", .experts = kNormalised},
    GgufArchitecture{.name = "ernie4_5", .model_type = "ernie4_5"},
    GgufArchitecture{.name = "gptneox", .model_type = "gpt_neox"},
    GgufArchitecture{.name = "stablelm", .model_type = "stablelm"},
    GgufArchitecture{.name = "bloom", .model_type = "bloom"},
    GgufArchitecture{.name = "mpt", .model_type = "mpt"},
    GgufArchitecture{.name = "deepseek2", .model_type = "deepseek_v2", .experts = kPlain}};

// Files that are no language models, by a value of general.type or general.architecture.
struct OtherKind {
  std::string_view value;
  std::string_view text;
};
constexpr std::string_view kProjector =
    "a vision or audio projector; give the model's own GGUF file, which lies beside it";
constexpr std::string_view kImportance =
    "an importance matrix, an input of quantisation; give the model's own GGUF file";
constexpr OtherKind kOtherKinds[] = {
    {"clip", kProjector},
    {"mmproj", kProjector},
    {"adapter", "a LoRA adapter; merge it into its model, adapters are not applied"},
    {"controlvector", "a control vector; these are not applied"},
    {"imatrix", kImportance}};

void require_model(const GgufHeader& header) {
  for (const char* const key : {"general.type", "general.architecture"}) {
    if (header.has_array(key)) continue;
    const auto value = header.text(key);
    for (const OtherKind& other : kOtherKinds) {
      if (value == other.value) {
        throw InputError(fmt::format("{}: the file is {}", header.name(), other.text));
      }
    }
  }
  if (header.has("imatrix.datasets") || header.has("imatrix.chunk_count")) {
    throw InputError(fmt::format("{}: the file is {}", header.name(), kImportance));
  }
}

// Names of these parts stay as they are.
bool is_other_part(std::string_view tensor) {
  constexpr std::string_view kParts[] = {"v.", "a.", "mm.", "resampler."};
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](std::string_view part) { return tensor.starts_with(part); });
}

bool has_tensor_with(const GgufHeader& header, const std::string& prefix) {
  const auto next = header.tensors().lower_bound(prefix);
  return next != header.tensors().end() && next->first.starts_with(prefix);
}

}  // namespace

const GgufArchitecture& GgufArchitecture::of(const GgufHeader& header) {
  constexpr const char* kKey = "general.architecture";
  require_model(header);
  const std::string_view name = header.text(kKey).value_or("");
  std::vector<std::string_view> names;
  const std::string count = fmt::format("{}.expert_count", name);
  const bool experts = header.integer_or(count, 0, INT32_MAX, 0) > 0;
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.name == name && (known.experts != GgufExperts::kNone) == experts) return known;
    if (names.empty() || names.back() != known.name) names.push_back(known.name);
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    header.fail(count, experts ? "0" : "1 or more");
  }
  header.fail(kKey, fmt::format("{}", fmt::join(names, ", ")));
}

const ModelFamily& GgufArchitecture::family() const { return *ModelFamily::find(model_type); }

int64_t GgufArchitecture::layers(const GgufHeader& header) const {
  const auto key = [&](std::string_view of) { return fmt::format("{}.{}", name, of); };
  const std::string total = key("block_count");
  int64_t layers = header.integer(total, 1, int64_t{kMaxGgufTensors});  // each has some
  int64_t predicting = header.integer_or(key("nextn_predict_layers"), 0, 4096, 0);
  for (; layers > 1; --layers) {
    const std::string prefix = fmt::format("blk.{}.", layers - 1);
    const bool predicts = has_tensor_with(header, prefix + "nextn.");
    // Some files keep the count of layers that they leave out.
    if (!predicts && (predicting == 0 || has_tensor_with(header, prefix))) break;
    if (predicting > 0) --predicting;
  }
  return layers;
}

int64_t GgufArchitecture::predicting_layers(const GgufHeader& header) const {
  const int64_t first = layers(header);
  int64_t count = 0;
  while (has_tensor_with(header, fmt::format("blk.{}.nextn.", first + count))) ++count;
  return count;
}

std::string GgufArchitecture::model_name(std::string_view tensor) const {
  if (is_other_part(tensor)) return std::string(tensor);
  const ModelFamily& family = this->family();
  const TensorNames& names = family.names;
  const std::string other = fmt::format("{}{}", names.root, tensor);
  const size_t dot = tensor.rfind('.');
  if (dot == std::string_view::npos) return other;
  const std::string_view kind = tensor.substr(dot), stem = tensor.substr(0, dot);
  if (stem == "output") return fmt::format("{}{}", names.head, kind);
  if (const auto top = gguf_top_name(names, stem); !top.empty()) {
    return fmt::format("{}{}{}", names.root, top, kind);
  }
  constexpr std::string_view kLayer = "blk.";
  if (!tensor.starts_with(kLayer)) return other;
  const size_t end = tensor.find('.', kLayer.size());
  const std::string_view layer = tensor.substr(kLayer.size(), end - kLayer.size());
  const std::string prefix = fmt::format("{}{}.{}.", names.root, names.layers, layer);
  if (end == std::string_view::npos) return other;
  if (const auto whole = gguf_whole_name(family, tensor.substr(end + 1))) return prefix + *whole;
  if (dot <= end) return other;
  const std::string own = gguf_layer_name(family, tensor.substr(end + 1, dot - end - 1));
  return own.empty() ? other : fmt::format("{}{}{}", prefix, own, kind);
}

}  // namespace fasa
