// What config.json says of a model: shapes, rotary parameters, windows, end-of-sequence ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"

namespace fasa {

enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn };

struct RopeParameters {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;
  double factor = 1;
  int64_t original_positions = 0;  // of the model before its context was extended
  double low_freq_factor = 1;      // llama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // yarn
  double beta_slow = 1;
  bool truncate = true;
  double attention_factor = 1;  // multiplies cosines and sines

  // Canonical text of the scaling, "" = none: part of a model's fingerprint.
  std::string scaling_text() const;
};

struct ModelConfig {
  std::string model_type;  // llama, mistral, qwen2, qwen3
  int vocab_size = 0;
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float rms_eps = 1e-6f;
  RopeParameters rope;
  int64_t max_positions = 0;
  std::vector<int> windows;  // sliding window of each layer in tokens, 0 = none; empty = none
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;
  std::vector<int32_t> eos_ids;  // generation_config.json's where it has any, else config.json's
  std::optional<DType> stored_dtype;

  Geometry geometry() const;
  int64_t parameters() const;
  // Rows keep the precision that the model was stored in, whatever its activations are computed in:
  // what a KV cache of the same model takes elsewhere.
  DType row_dtype() const { return stored_dtype.value_or(DType::kBF16); }
  bool is_eos(int32_t id) const;

  // Reads config.json and, where there is one, generation_config.json. Throws InputError naming
  // file and key.
  static ModelConfig load(const std::string& dir);
  static ModelConfig parse(std::string_view json, const std::string& name);
  // Takes the end-of-sequence ids of a generation_config.json instead.
  void parse_generation(std::string_view json, const std::string& name);
};

}  // namespace fasa
