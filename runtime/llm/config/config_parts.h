// The parts of a config.json that files of their own read for model_config.cc. All throw InputError
// naming file and key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/io/json_fields.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// The text model's part of a config.json, with the defaults of transformers' config classes that
// published files rely on. Models of text and images keep it in text_config.
class TextConfig {
 public:
  // `whole`: the file.
  TextConfig(const nlohmann::json& whole, const std::string& name);

  const nlohmann::json& object() const { return text_; }
  const std::string& prefix() const { return prefix_; }  // of its keys

 private:
  nlohmann::json text_;
  std::string prefix_;
};

// Slopes where the number of heads is not a power of two. kExtrasLast (bloom): those of the next
// lower power, then every other one of the next higher power. kInterleaved (mpt): those of the next
// higher power, odd positions before even ones, cut to the number of heads.
enum class AlibiOrder : uint8_t { kExtrasLast, kInterleaved };

// ALiBi (arXiv 2108.12409): scores fall linearly with distance, with one slope per query head.
// Slopes [heads]; for n = 2^k heads: 2^(-most/n), 2^(-2 most/n), ..., 2^-most.
std::vector<float> alibi_slopes(int heads, AlibiOrder order, double most);

// Mixtures of experts. `config` must have family, layers and intermediate set.
void read_experts(const JsonFields& fields, ModelConfig* config);

// Which layers have linear attention, and their shape. Does nothing for families without such
// layers.
void read_linear(const JsonFields& fields, ModelConfig* config);

// Sets windows and layer_rotations. `config` must have its shapes and rotary parameters.
void read_layer_kinds(const JsonFields& fields, ModelConfig* config);

// Missing keys of Gemma models take transformers' defaults; null means none.
void read_gemma2(const JsonFields& fields, ModelConfig* config);
void read_gemma3(const JsonFields& fields);  // only checks
// Call after read_layer_kinds.
void read_gemma4(const JsonFields& fields, const std::string& name, ModelConfig* config);

}  // namespace fasa
