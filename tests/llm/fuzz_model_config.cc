// A libFuzzer target of the readers of config.json and generation_config.json. Build it with clang,
// -fsanitize=fuzzer and this file; model_config_fuzz_test.cc runs it over the seed corpus and
// changes of it.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/llm/config/model_config.h"
#include "runtime/llm/config/rope_frequencies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    fasa::ModelConfig config = fasa::ModelConfig::parse(text, "fuzz.json");
    // An accepted config gives a valid geometry and frequencies.
    config.geometry().validate();
    if (config.parameters() <= 0) std::abort();
    for (const fasa::Rotation& rotation : fasa::make_rotations(config)) {
      for (const float frequency : rotation.frequencies) {
        if (!std::isfinite(frequency)) std::abort();
      }
    }
    config.parse_generation(text, "fuzz.json");
  } catch (const fasa::InputError&) {
    // The only error that a model's files may cause.
  }
  return 0;
}
