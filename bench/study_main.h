// The main function of a study: errors on standard error, their exit codes.
#pragma once

#include <fmt/format.h>

#include <exception>

#include "runtime/base/error.h"

namespace fasa::bench {

inline int study_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return static_cast<int>(error.kind());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace fasa::bench
