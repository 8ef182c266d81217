#include "runtime/llm/compute/open_weights.h"

#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/gguf/gguf_file.h"
#include "runtime/llm/weights/quantization_config.h"
#include "runtime/llm/weights/quantized_files.h"
#include "runtime/llm/weights/safetensors.h"

namespace fasa {

std::unique_ptr<WeightSource> open_weights(const std::string& path) {
  if (is_gguf(path)) return std::make_unique<GgufFile>(path);
  const std::string config_path = path + "/config.json";
  const nlohmann::json config = parse_json(read_file(config_path), config_path);
  const auto quantised = QuantizationConfig::parse(config, config_path);
  auto files = std::make_unique<WeightFiles>(path);
  if (!quantised) return files;
  return std::make_unique<QuantizedFiles>(std::move(files), *quantised);
}

}  // namespace fasa
