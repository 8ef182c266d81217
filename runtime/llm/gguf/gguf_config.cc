#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

constexpr std::array<std::string_view, 3> kArchitectures = {"llama", "qwen2", "qwen3"};
constexpr int64_t kMost = int64_t{1} << 30;

// Keys of one architecture.
class Keys {
 public:
  Keys(const GgufHeader& header, std::string architecture)
      : header_(header), prefix_(std::move(architecture) + ".") {}
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  int64_t integer(std::string_view key) const { return header_.integer(name(key), 1, kMost); }
  int64_t integer_or(std::string_view key, int64_t otherwise) const {
    return header_.integer_or(name(key), 1, kMost, otherwise);
  }
  double number(std::string_view key) const { return header_.number(name(key)); }
  double number_or(std::string_view key, double otherwise) const {
    return header_.number_or(name(key), otherwise);
  }
  std::string text_or(std::string_view key, std::string_view otherwise) const {
    return std::string(header_.text(name(key)).value_or(otherwise));
  }
  [[noreturn]] void fail(std::string_view key, std::string_view allowed) const {
    header_.fail(name(key), allowed);
  }

 private:
  const GgufHeader& header_;
  std::string prefix_;
};

std::string architecture_of(const GgufHeader& header) {
  const std::string name(header.text("general.architecture").value_or(""));
  for (const std::string_view known : kArchitectures) {
    if (name == known) return name;
  }
  header.fail("general.architecture", fmt::format("{}", fmt::join(kArchitectures, ", ")));
}

// Frequencies of Llama 3.1's kind are stored divided: by nothing where a turn is short, by the
// factor where it is long, in between smoothly.
double llama3_divisor(double theta, int64_t pair, int64_t dims, double factor, double original) {
  constexpr double kLow = 1, kHigh = 4;
  const double frequency =
      std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
  const double turns = original * frequency / (2 * std::numbers::pi);
  if (turns > kHigh) return 1;
  if (turns < kLow) return factor;
  const double smooth = (turns - kLow) / (kHigh - kLow);
  return 1 / ((1 - smooth) / factor + smooth);
}

nlohmann::json divided_frequencies(const GgufHeader& header, const GgufTensor& tensor,
                                   double theta) {
  constexpr int64_t kOriginal = 8192;
  constexpr const char* kName = "rope_freqs.weight";
  const int64_t pairs = tensor.shape.back();
  if (tensor.shape.size() != 1 || tensor.block->type != GgmlType::kF32 || pairs > 4096) {
    throw InputError(fmt::format("{}: tensor {}: allowed: one row of F32", header.name(), kName));
  }
  std::vector<float> divisors(static_cast<size_t>(pairs));
  std::memcpy(divisors.data(), header.data().data() + tensor.begin, divisors.size() * 4);
  const double factor = static_cast<double>(divisors.back());
  for (int64_t i = 0; i < pairs; ++i) {
    const double expected = llama3_divisor(theta, i, 2 * pairs, factor, kOriginal);
    if (!(std::abs(static_cast<double>(divisors[static_cast<size_t>(i)]) - expected) <=
          1e-3 * expected)) {
      throw InputError(
          fmt::format("{}: tensor {}: frequencies divided in another way than Llama "
                      "3.1's from {} positions",
                      header.name(), kName, kOriginal));
    }
  }
  if (factor == 1) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1},
          {"high_freq_factor", 4},
          {"original_max_position_embeddings", kOriginal}};
}

nlohmann::json rope_scaling(const GgufHeader& header, const Keys& keys, double theta) {
  const std::string kind = keys.text_or("rope.scaling.type", "none");
  const auto freqs = header.tensors().find("rope_freqs.weight");
  if (freqs != header.tensors().end()) return divided_frequencies(header, freqs->second, theta);
  if (kind == "none") return nullptr;
  const double factor = keys.number("rope.scaling.factor");
  if (kind == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (kind == "yarn") {
    return {
        {"rope_type", "yarn"},
        {"factor", factor},
        {"original_max_position_embeddings", keys.integer("rope.scaling.original_context_length")}};
  }
  keys.fail("rope.scaling.type", "none, linear, yarn");
}

std::vector<int64_t> ends_of_text(const GgufHeader& header) {
  std::vector<int64_t> ids;
  for (const char* key : {"eos", "eot", "eom"}) {
    const std::string name = fmt::format("tokenizer.ggml.{}_token_id", key);
    if (header.has(name)) ids.push_back(header.integer(name, 0, kMost));
  }
  return ids;
}

bool has_tensor(const GgufHeader& header, const char* name) {
  return header.tensors().contains(name);
}

void add_heads(const Keys& keys, nlohmann::json* config) {
  const int64_t hidden = keys.integer("embedding_length");
  const int64_t heads = keys.integer("attention.head_count");
  const int64_t head_dim = keys.integer_or("attention.key_length", hidden / heads);
  if (keys.integer_or("attention.value_length", head_dim) != head_dim) {
    keys.fail("attention.value_length", "attention.key_length");
  }
  if (keys.integer_or("rope.dimension_count", head_dim) != head_dim) {
    keys.fail("rope.dimension_count", "the length of a head's key");
  }
  (*config)["hidden_size"] = hidden;
  (*config)["num_attention_heads"] = heads;
  (*config)["num_key_value_heads"] = keys.integer_or("attention.head_count_kv", heads);
  (*config)["head_dim"] = head_dim;
}

}  // namespace

// Some files say how their model is meant to be sampled. `do_sample` is what a temperature above 0
// says; no temperature beside other settings is one of 1, as in a folder.
std::string gguf_generation_json(const GgufHeader& header) {
  constexpr std::pair<const char*, const char*> kKeys[] = {{"temp", "temperature"},
                                                           {"top_p", "top_p"},
                                                           {"min_p", "min_p"},
                                                           {"penalty_repeat", "repetition_penalty"},
                                                           {"top_k", "top_k"}};
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [key, name] : kKeys) {
    const std::string own = fmt::format("general.sampling.{}", key);
    if (!header.has(own)) continue;
    if (std::string_view(key) == "top_k") {
      settings[name] = std::max<int64_t>(0, header.integer(own, -kMost, kMost));  // -1: all
    } else {
      settings[name] = header.number(own);
    }
  }
  const bool only_penalty = settings.size() == settings.count("repetition_penalty");
  settings["do_sample"] = !only_penalty && settings.value("temperature", 1.0) > 0;
  return settings.dump();
}

std::string gguf_config_json(const GgufHeader& header) {
  const std::string architecture = architecture_of(header);
  const Keys keys(header, architecture);
  const auto embeddings = header.tensors().find("token_embd.weight");
  if (embeddings == header.tensors().end() || embeddings->second.shape.size() != 2) {
    throw InputError(fmt::format("{}: has no matrix token_embd.weight", header.name()));
  }
  const double theta = keys.number_or("rope.freq_base", 10000);
  // Written from a float, as 9.99999974e-06: six digits are what was meant.
  const double eps = keys.number("attention.layer_norm_rms_epsilon");
  nlohmann::json config = {
      {"model_type", architecture},
      {"vocab_size", embeddings->second.shape[0]},
      {"num_hidden_layers", keys.integer("block_count")},
      {"intermediate_size", keys.integer("feed_forward_length")},
      {"max_position_embeddings", keys.integer("context_length")},
      {"rms_norm_eps", std::stod(fmt::format("{:.6g}", eps))},
      {"rope_theta", theta},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", !has_tensor(header, "output.weight")},
      {"attention_bias", has_tensor(header, "blk.0.attn_output.bias")},
      {"eos_token_id", ends_of_text(header)},
  };
  add_heads(keys, &config);
  const nlohmann::json scaling = rope_scaling(header, keys, theta);
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  return config.dump();
}

}  // namespace fasa
