// A libFuzzer target of the config file's reader. Build it with clang, -fsanitize=fuzzer and this
// file; config_fuzz_test.cc runs it over the seed corpus and mutations of it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/config/config_load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const fasa::Config config = fasa::load_config({.toml = text, .toml_name = "fuzz.toml"});
    config.validate();
    fasa::config_to_json(config);
  } catch (const fasa::UsageError&) {
    // The only error that a config file may cause.
  }
  return 0;
}
