// A libFuzzer target of the selection trace's reader. Build it with clang, -fsanitize=fuzzer and
// this file; selection_trace_fuzz_test.cc runs it over the seed corpus and mutations of it.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/base/error.h"
#include "runtime/io/hash.h"
#include "runtime/trace/selection_trace.h"

namespace {

void read(const std::string& bytes) {
  try {
    const auto trace = fasa::SelectionTrace::parse(bytes, "fuzz.fasatrace");
    // An accepted trace can be written and read again.
    const std::string written = trace.to_bytes();
    if (!(fasa::SelectionTrace::parse(written, "again.fasatrace") == trace)) std::abort();
  } catch (const fasa::InputError&) {
    // The only error that a trace file may cause.
  }
}

// The checksum would reject every changed file: replace it with one that fits.
std::string with_checksum(std::string bytes) {
  if (bytes.size() < 16) return bytes;
  bytes.resize(bytes.size() - 16);
  return bytes + fmt::format("{:016x}", fasa::fnv1a(bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read(with_checksum(bytes));
  return 0;
}
