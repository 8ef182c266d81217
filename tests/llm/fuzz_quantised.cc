// A libFuzzer target of the readers of packed matrices in safetensors files. The input is a line
// with quantization_config, then the file. Build it with clang, -fsanitize=fuzzer and this file;
// quantised_fuzz_test.cc runs it over the seed corpus and changes of it.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/weights/quantization_config.h"
#include "runtime/llm/weights/quantized_files.h"

namespace {

const std::string& folder() {
  static const std::string path = [] {
    std::string name = "/tmp/fasa-fuzz-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    return name;
  }();
  return path;
}

// Reads every matrix to its last element, as panels and as rows of f32.
void read_all(const fasa::QuantizedFiles& files) {
  for (const auto& [name, matrix] : files.matrices()) {
    if (matrix->inputs() > 4096 || matrix->outputs() > 4096) continue;
    std::vector<float> row(static_cast<size_t>(matrix->inputs()));
    matrix->dequantise(matrix->outputs() - 1, 1, row.data());
    if (!matrix->packs()) continue;
    fasa::CodeRows rows(matrix->format(), matrix->places(), 1);
    matrix->read(0, 1, &rows);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return 0;
  try {
    const nlohmann::json document = fasa::parse_json(text.substr(0, end), "fuzz.json");
    if (!document.is_object()) return 0;
    const auto config = fasa::QuantizationConfig::parse(document, "fuzz.json");
    if (!config) return 0;
    std::ofstream(folder() + "/model.safetensors", std::ios::binary) << text.substr(end + 1);
    read_all(fasa::QuantizedFiles(std::make_unique<fasa::WeightFiles>(folder()), *config));
  } catch (const fasa::InputError&) {
    // The only error that a file may cause.
  }
  return 0;
}
