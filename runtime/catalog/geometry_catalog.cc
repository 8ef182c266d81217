#include "runtime/catalog/geometry_catalog.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/catalog/loose_name.h"
#include "runtime/io/nearest.h"

namespace fasa {
namespace {

// What not all models have.
struct Kinds {
  int window = 0;  // tokens, of all but every `pattern`-th layer
  int pattern = 1;
  int experts = 0;  // each `intermediate` wide
  int chosen = 0;   // of a token; a shared one is among them
  // Linear attention in all but every `full_every`-th layer, whose attention has a gate and turns a
  // quarter of a head.
  int full_every = 0;
  LinearShape linear = {};
  // Heads of the layers with a window, where they are others. Scores are not scaled then.
  HeadShape window_heads = {};
  int shared = 0;       // the last layers, which share keys and values
  bool wide = false;    // their MLPs are twice as wide
  int layer_input = 0;  // width of the inputs per layer
};

constexpr LinearShape qwen_linear(int value_heads) {
  return {.key_heads = 16, .value_heads = value_heads, .key_dim = 128, .value_dim = 128, .taps = 4};
}

constexpr Kinds qwen_dense(int value_heads) {
  return {.full_every = 4, .linear = qwen_linear(value_heads)};
}

constexpr Kinds qwen_experts(int experts, int chosen) {
  return {.experts = experts, .chosen = chosen, .full_every = 4, .linear = qwen_linear(32)};
}

constexpr Kinds gemma_4(int window_kv_heads, int experts = 0, int chosen = 0) {
  return {.window = 1024,
          .pattern = 6,
          .experts = experts,
          .chosen = chosen,
          .window_heads = {.kv_heads = window_kv_heads, .key_dim = 256, .value_dim = 256}};
}

// With inputs per layer, and layers that share keys and values.
constexpr Kinds gemma_4_e(int pattern, int window_kv_heads, int shared, bool wide) {
  Kinds kinds = gemma_4(window_kv_heads);
  kinds.window = 512;
  kinds.pattern = pattern;
  kinds.shared = shared;
  kinds.wide = wide;
  kinds.layer_input = 256;
  return kinds;
}

struct Row {
  const char* name;
  int layers;
  int query_heads;
  int kv_heads;
  int head_dim;
  int hidden;
  int intermediate;
  int vocab;
  int max_positions;
  bool tied = false;
  Kinds kinds = {};
};

// The models' config.json files as published (Mistral-7B: of v0.3, which has no window);
// Ministral-3-8B, Qwen3.5 and Qwen3-Next: the defaults of transformers' configuration classes, with
// the context lengths of the model cards (262,144 natively); Qwen3.6: the model cards. Gemma 4:
// maxtext's configs/models, gemma4-26b.yml, gemma4-31b.yml, gemma4-e2b.yml and gemma4-e4b.yml; the
// MLP of 26B-A4B is as wide as three experts and counts as such.
constexpr Row kRows[] = {
    {"gpt-oss-20b", 24, 64, 8, 64, 2880, 2880, 201088, 131072, false, {128, 2, 32, 4}},
    {"gpt-oss-120b", 36, 64, 8, 64, 2880, 2880, 201088, 131072, false, {128, 2, 128, 4}},
    {"Llama-2-7B", 32, 32, 32, 128, 4096, 11008, 32000, 4096},
    {"Llama-3.1-8B", 32, 32, 8, 128, 4096, 14336, 128256, 131072},
    {"Llama-3.1-70B", 80, 64, 8, 128, 8192, 28672, 128256, 131072},
    {"Llama-3.1-405B", 126, 128, 8, 128, 16384, 53248, 128256, 131072},
    {"Llama-3.2-1B", 16, 32, 8, 64, 2048, 8192, 128256, 131072, true},
    {"Llama-3.2-3B", 28, 24, 8, 128, 3072, 8192, 128256, 131072, true},
    {"Llama-3.3-70B", 80, 64, 8, 128, 8192, 28672, 128256, 131072},
    {"Mistral-7B", 32, 32, 8, 128, 4096, 14336, 32768, 32768},
    {"Ministral-3-8B", 34, 32, 8, 128, 4096, 14336, 131072, 262144},
    {"Mistral-Nemo-12B", 40, 32, 8, 128, 5120, 14336, 131072, 131072},
    {"Mistral-Small-24B", 40, 32, 8, 128, 5120, 32768, 131072, 32768},
    {"Qwen2.5-0.5B", 24, 14, 2, 64, 896, 4864, 151936, 32768, true},
    {"Qwen2.5-1.5B", 28, 12, 2, 128, 1536, 8960, 151936, 131072, true},
    {"Qwen2.5-3B", 36, 16, 2, 128, 2048, 11008, 151936, 32768, true},
    {"Qwen2.5-7B", 28, 28, 4, 128, 3584, 18944, 152064, 131072},
    {"Qwen2.5-7B-1M", 28, 28, 4, 128, 3584, 18944, 152064, 1010000},
    {"Qwen2.5-14B", 48, 40, 8, 128, 5120, 13824, 152064, 131072},
    {"Qwen2.5-32B", 64, 40, 8, 128, 5120, 27648, 152064, 131072},
    {"Qwen2.5-72B", 80, 64, 8, 128, 8192, 29568, 152064, 131072},
    {"Qwen3-0.6B", 28, 16, 8, 128, 1024, 3072, 151936, 40960, true},
    {"Qwen3-1.7B", 28, 16, 8, 128, 2048, 6144, 151936, 40960, true},
    {"Qwen3-4B", 36, 32, 8, 128, 2560, 9728, 151936, 40960, true},
    {"Qwen3-8B", 36, 32, 8, 128, 4096, 12288, 151936, 40960},
    {"Qwen3-14B", 40, 40, 8, 128, 5120, 17408, 151936, 40960},
    {"Qwen3-Next-80B-A3B", 48, 16, 2, 256, 2048, 512, 151936, 262144, false, qwen_experts(513, 11)},
    {"Qwen3.5-9B", 32, 16, 4, 256, 4096, 12288, 248320, 262144, false, qwen_dense(32)},
    {"Qwen3.5-35B-A3B", 40, 16, 2, 256, 2048, 512, 248320, 262144, false, qwen_experts(257, 9)},
    {"Qwen3.6-27B", 64, 24, 4, 256, 5120, 17408, 248320, 262144, false, qwen_dense(48)},
    {"Qwen3.6-35B-A3B", 40, 16, 2, 256, 2048, 512, 248320, 262144, false, qwen_experts(257, 9)},
    {"Gemma-4-E2B", 35, 8, 1, 512, 1536, 6144, 262144, 131072, true, gemma_4_e(5, 1, 20, true)},
    {"Gemma-4-E4B", 42, 8, 2, 512, 2560, 10240, 262144, 131072, true, gemma_4_e(6, 2, 18, false)},
    {"Gemma-4-26B-A4B", 30, 16, 2, 512, 2816, 704, 262144, 262144, true, gemma_4(8, 131, 11)},
    {"Gemma-4-31B", 60, 32, 4, 512, 5376, 21504, 262144, 262144, true, gemma_4(16)},
    {"Qwen3-32B", 64, 64, 8, 128, 5120, 25600, 151936, 40960},
};

// Takes the layers without rows out of the geometry; see ModelShape::intermediate.
void add_linear(const Row& row, ModelShape* shape) {
  const int full = row.layers / row.kinds.full_every;
  LinearShape linear = row.kinds.linear;
  linear.layers = row.layers - full;
  const int64_t projections =
      linear.channels() + 2 * (int64_t{linear.value_width()} + linear.value_heads);
  const int64_t gates = int64_t{row.query_heads} * row.head_dim;
  const int64_t others = linear.layers * projections + full * gates;  // rows of `hidden` weights
  shape->mlp_width = shape->intermediate;
  shape->intermediate = (row.layers * shape->intermediate + others / 3) / full;
  shape->geometry.layers = full;
  shape->geometry.rotary_dims = row.head_dim / 4;
  shape->geometry.linear = linear;
}

// See ModelShape::intermediate. Each layer has two matrices of hidden x layer_input; its part of
// the projection of all inputs is a third one.
void add_layer_inputs(const Row& row, ModelShape* shape) {
  const Kinds& kinds = row.kinds;
  const int widened = kinds.wide ? kinds.shared : 0;
  shape->mlp_width = int64_t{row.intermediate} * (kinds.wide ? 2 : 1);
  shape->intermediate =
      int64_t{row.intermediate} * (row.layers + widened) / row.layers + kinds.layer_input;
  shape->layer_embeddings = int64_t{row.layers} * kinds.layer_input * row.vocab;
}

ModelShape shape_of(const Row& row) {
  ModelShape shape;
  shape.name = row.name;
  shape.geometry = {.layers = row.layers,
                    .kv_heads = row.kv_heads,
                    .query_heads = row.query_heads,
                    .key_dim = row.head_dim,
                    .value_dim = row.head_dim,
                    .rotary_dims = row.head_dim,
                    .rotary_layout = RotaryLayout::kHalf,
                    .scale = static_cast<float>(1.0 / std::sqrt(row.head_dim)),
                    .windows = {}};
  shape.hidden = row.hidden;
  shape.intermediate = row.intermediate;
  shape.vocab = row.vocab;
  shape.max_positions = row.max_positions;
  shape.tied_embeddings = row.tied;
  const Kinds& kinds = row.kinds;
  for (int layer = 1; kinds.window > 0 && layer <= row.layers; ++layer) {
    shape.geometry.windows.push_back(layer % kinds.pattern == 0 ? 0 : kinds.window);
  }
  if (kinds.window_heads.kv_heads > 0) {
    shape.geometry.window_heads = kinds.window_heads;
    shape.geometry.scale = 1;
  }
  if (kinds.experts > 0) {
    shape.intermediate *= kinds.chosen;
    shape.idle_parameters =
        int64_t{3} * row.layers * (kinds.experts - kinds.chosen) * row.hidden * row.intermediate;
  }
  shape.geometry.shared_layers = kinds.shared;
  if (kinds.layer_input > 0) add_layer_inputs(row, &shape);
  if (kinds.full_every > 0) add_linear(row, &shape);
  return shape;
}

}  // namespace

std::span<const ModelShape> model_shapes() {
  static const std::vector<ModelShape> all = [] {
    std::vector<ModelShape> list;
    for (const Row& row : kRows) list.push_back(shape_of(row));
    return list;
  }();
  return all;
}

const ModelShape& find_model_shape(std::string_view name) {
  const std::string wanted = loose_name(name);
  std::vector<std::string> names;
  for (const ModelShape& shape : model_shapes()) {
    if (loose_name(shape.name) == wanted) return shape;
    names.push_back(shape.name);
  }
  constexpr size_t kShown = 4;
  throw UsageError(
      fmt::format("geometry \"{}\" is unknown (nearest: {}); fasa plan --list shows all names",
                  name, fmt::join(nearest_names(name, names, kShown), ", ")));
}

}  // namespace fasa
