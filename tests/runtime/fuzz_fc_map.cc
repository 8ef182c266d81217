// A libFuzzer target of the FC map's reader. Build it with clang, -fsanitize=fuzzer and this file;
// fc_map_fuzz_test.cc runs it over the seed corpus and mutations of it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const fasa::FcMap map = fasa::FcMap::parse(text, "fuzz.json");
    map.require_fits(map.fingerprint, "fuzz.json");
    const int chunks = map.fingerprint.key_dim / 2;
    const auto heads = static_cast<size_t>(map.fingerprint.layers * map.fingerprint.kv_heads);
    if (map.slice_dims(chunks).size() != heads * static_cast<size_t>(2 * chunks)) std::abort();
    // An accepted map can be written and read again.
    const std::string written = map.to_json();
    if (fasa::FcMap::parse(written, "again.json").to_json() != written) std::abort();
  } catch (const fasa::InputError&) {
    // The only error that a map file may cause.
  }
  return 0;
}
