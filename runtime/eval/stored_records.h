// Reads members of stored results, which a user may have changed.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace fasa {

// Returns read(). Throws InputError that says what to do if a record lacks a member that read()
// takes, or has one of another type.
template <typename Read>
auto from_stored_records(Read read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw InputError(fmt::format(
        "a stored result is invalid: {}; remove its line, or start again (--fresh)", error.what()));
  }
}

}  // namespace fasa
