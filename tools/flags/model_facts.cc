#include "tools/flags/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/weights/quantization_config.h"
#include "runtime/llm/weights/safetensors.h"

namespace fasa {
namespace {

using Bytes = std::map<std::string, uint64_t, std::less<>>;  // of matrices, by their type

std::string largest_of(const Bytes& types) {
  const auto most = std::max_element(
      types.begin(), types.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == types.end() ? "unknown" : most->first;
}

// The mixtures of types that quantisers name, by their number in "general.file_type".
std::string_view mixture_of(const GgufHeader& header) {
  constexpr std::array<std::string_view, 31> kNames = {
      "F32",    "F16",    "Q4_0",  "Q4_1",    "",       "",       "",       "Q8_0",
      "Q5_0",   "Q5_1",   "Q2_K",  "Q3_K_S",  "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M",
      "Q5_K_S", "Q5_K_M", "Q6_K",  "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS",
      "IQ1_S",  "IQ4_NL", "IQ3_S", "IQ3_M",   "IQ2_S",  "IQ2_M",  "IQ4_XS"};
  try {
    const int64_t number = header.integer_or("general.file_type", 0, INT32_MAX, -1);
    return number >= 0 && number < std::ssize(kNames) ? kNames[static_cast<size_t>(number)] : "";
  } catch (const InputError&) {
    return "";  // it decides nothing
  }
}

// Embeddings are often of another type than the layers.
std::string gguf_quantization(const std::string& path) {
  const GgufFiles files(path);
  Bytes types;
  for (const auto& [name, tensor] : files.header().tensors()) {
    const bool layer =
        tensor.shape.size() > 1 && name != "token_embd.weight" && name != "output.weight";
    if (layer) types[std::string(tensor.block->name)] += tensor.bytes;
  }
  // The key may be of another file, from which this one was made.
  const std::string_view mixture = mixture_of(files.header());
  const auto bits = [](std::string_view type) { return type.substr(0, type.find('_')); };
  const bool fits = std::any_of(types.begin(), types.end(),
                                [&](const auto& one) { return bits(one.first) == bits(mixture); });
  return fits ? std::string(mixture) : largest_of(types);
}

std::string layout_name(const QuantizationConfig& config) {
  switch (config.layout) {
    case QuantLayout::kAwq:
      return "AWQ";
    case QuantLayout::kGptqV1:
    case QuantLayout::kGptqV2:
      return "GPTQ";
    case QuantLayout::kPackQuantized:
      return fmt::format("INT{}", config.groups.empty() ? 4 : config.groups[0].bits);
    case QuantLayout::kBitsAndBytes:
      return "BNB4";
    case QuantLayout::kFp8:
      return "FP8";
    case QuantLayout::kPackedMxfp4:
    case QuantLayout::kMxfp4:
      return "MXFP4";
  }
  return "unknown";
}

std::string folder_quantization(const std::string& folder, const std::vector<std::string>& files) {
  const std::string name = folder + "/config.json";
  const auto quantised = QuantizationConfig::parse(nlohmann::json::parse(read_file(name)), name);
  if (quantised) return layout_name(*quantised);
  Bytes types;
  for (const std::string& file : files) {
    const SafetensorsFile opened(file);
    for (const auto& [tensor, entry] : opened.entries()) {
      if (entry.shape.size() > 1) types[entry.dtype] += entry.end - entry.begin;
    }
  }
  return largest_of(types);
}

std::vector<std::string> weight_files(const std::string& path, bool gguf) {
  std::vector<std::string> files;
  if (gguf) return gguf_paths(path);
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// A hash of each file's size, first and last bytes: these have its header and some of its weights.
// Reading all of them would delay the start of a server by minutes.
class ContentHash {
 public:
  void add(const std::string& file, uint64_t size) {
    constexpr uint64_t kPart = uint64_t{1} << 20;
    std::ifstream stream(file, std::ios::binary);
    add(fmt::format("{} ", size));
    add(part(stream, 0, std::min(size, kPart)));
    add(part(stream, size - std::min(size, kPart), std::min(size, kPart)));
  }
  std::string hex() const { return fmt::format("{:016x}", fmt::join(lanes_, "")); }

 private:
  static std::string part(std::ifstream& stream, uint64_t begin, uint64_t bytes) {
    std::string text(bytes, '\0');
    stream.seekg(static_cast<std::streamoff>(begin));
    stream.read(text.data(), static_cast<std::streamsize>(bytes));
    return text;
  }
  void add(const std::string& bytes) {
    for (uint64_t& lane : lanes_) lane = fnv1a(bytes, lane);
  }
  // As long as the SHA-256 that clients expect.
  std::array<uint64_t, 4> lanes_ = {kFnvBasis, kFnvBasis + 1, kFnvBasis + 2, kFnvBasis + 3};
};

}  // namespace

serve::ModelFacts model_facts(const std::string& path, const ModelConfig& config) {
  const bool gguf = is_gguf(path);
  const std::vector<std::string> files = weight_files(path, gguf);
  serve::ModelFacts facts{
      .architecture = config.model_type,
      .quantization = gguf ? gguf_quantization(path) : folder_quantization(path, files),
      .format = gguf ? "gguf" : "safetensors",
      .parameters = config.parameters()};
  ContentHash hash;
  for (const std::string& file : files) {
    std::error_code missing;  // a file with the name of a part may be whole
    const uint64_t bytes = std::filesystem::file_size(file, missing);
    if (missing) continue;
    facts.bytes += bytes;
    hash.add(file, bytes);
  }
  facts.digest = hash.hex();
  return facts;
}

}  // namespace fasa
