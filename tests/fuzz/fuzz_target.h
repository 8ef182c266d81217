// A fuzz target feeds arbitrary bytes to a reader of outside files. Each file fuzz_NAME.cc has one
// target. With clang and tools/fuzz it is a libFuzzer program; in every build it is a part of
// fuzz_targets_test, which runs it over its seeds (corpus/NAME), their prefixes and pseudo-random
// changes.
//
//   FASA_FUZZ_TARGET(needle_template) { NeedleTemplate::parse(text_of(data, size), "fuzz"); }
//
// A target may throw InputError and UsageError, the errors for files and settings. Any other
// exception, a hang, excessive memory or a sanitizer report is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace fasa::testing {

using FuzzBody = void (*)(const uint8_t* data, size_t size);
void add_fuzz_target(const char* name, FuzzBody body);

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

template <typename Body>
void run_guarded(Body body, const uint8_t* data, size_t size) {
  try {
    body(data, size);
  } catch (const InputError&) {
  } catch (const UsageError&) {
  }
}

}  // namespace fasa::testing

// NOLINTBEGIN(readability-identifier-naming): libFuzzer's name.
#ifdef FASA_LIBFUZZER
#define FASA_FUZZ_ENTRY(name)                                               \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    fasa::testing::run_guarded(fasa::testing::fuzz_##name, data, size);     \
    return 0;                                                               \
  }
#else
#define FASA_FUZZ_ENTRY(name)                                          \
  [[maybe_unused]] const bool added_##name = [] {                      \
    fasa::testing::add_fuzz_target(#name, fasa::testing::fuzz_##name); \
    return true;                                                       \
  }();
#endif
#define FASA_FUZZ_TARGET(name)                                          \
  namespace fasa::testing {                                             \
  static void fuzz_##name(const uint8_t* data, size_t size);            \
  }                                                                     \
  FASA_FUZZ_ENTRY(name)                                                 \
  void fasa::testing::fuzz_##name([[maybe_unused]] const uint8_t* data, \
                                  [[maybe_unused]] size_t size)
// NOLINTEND(readability-identifier-naming)
