// A libFuzzer target of the GGUF reader: header, config, tokenizer and matrices. Build it with
// clang, -fsanitize=fuzzer and this file; gguf_fuzz_test.cc runs it over the seed corpus and
// changes of it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/llm/config/model_config.h"
#include "runtime/llm/generation/generation_defaults.h"
#include "runtime/llm/gguf/gguf_header.h"
#include "runtime/llm/gguf/gguf_matrix.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace {

// Reads every matrix of an accepted file to its last element.
void read_all(const fasa::GgufHeader& header) {
  for (const auto& [name, tensor] : header.tensors()) {
    if (tensor.begin > header.data().size() || tensor.bytes > header.data().size() - tensor.begin) {
      std::abort();
    }
    if (tensor.shape.size() != 2 || !tensor.block->is_read()) continue;
    const auto matrix = fasa::make_gguf_matrix(tensor, {});
    std::vector<float> row(static_cast<size_t>(matrix->inputs()));
    matrix->dequantise(matrix->outputs() - 1, 1, row.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const fasa::GgufHeader header({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
    read_all(header);
    try {
      fasa::ModelConfig::parse(fasa::gguf_config_json(header), "fuzz.gguf");
    } catch (const fasa::InputError&) {
      // The only error that a file may cause.
    }
    fasa::GenerationDefaults::parse(fasa::gguf_generation_json(header), "fuzz.gguf");
    fasa::gguf_tokenizer_config_json(header);
    fasa::gguf_tokenizer_json(header);
  } catch (const fasa::InputError&) {
  }
  return 0;
}
