// A libFuzzer target of the safetensors header's reader. Build it with clang, -fsanitize=fuzzer and
// this file; safetensors_fuzz_test.cc runs it over the seed corpus and changes of it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/llm/weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    uint64_t begin = 0;
    const auto entries = fasa::parse_safetensors_header(
        {reinterpret_cast<const std::byte*>(data), size}, size, "fuzz.safetensors", &begin);
    // An accepted tensor lies inside the file and has the size of its shape.
    if (begin > size) std::abort();
    for (const auto& [name, entry] : entries) {
      if (entry.begin > entry.end || entry.end > size - begin) std::abort();
      for (const int64_t length : entry.shape) {
        if (length < 0) std::abort();
      }
    }
  } catch (const fasa::InputError&) {
    // The only error that a file may cause.
  }
  return 0;
}
