#include "bindings/c/status.h"

#include <exception>
#include <new>

namespace fasa::c {
namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

fasa_status say(fasa_status status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {
    last_error().clear();  // no memory for the words: the status says the kind
  }
  return status;
}

}  // namespace

fasa_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return say(static_cast<fasa_status>(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return say(FASA_ERROR_BUDGET, "the machine has too little memory");
  } catch (const std::exception& error) {
    return say(FASA_ERROR_INTERNAL, error.what());
  } catch (...) {
    return say(FASA_ERROR_INTERNAL, "an exception of unknown type");
  }
}

static_assert(static_cast<int>(ErrorKind::kUsage) == FASA_ERROR_USAGE);
static_assert(static_cast<int>(ErrorKind::kInput) == FASA_ERROR_INPUT);
static_assert(static_cast<int>(ErrorKind::kBudget) == FASA_ERROR_BUDGET);
static_assert(static_cast<int>(ErrorKind::kDevice) == FASA_ERROR_DEVICE);

}  // namespace fasa::c

const char* fasa_last_error() { return fasa::c::last_error().c_str(); }

const char* fasa_status_name(fasa_status status) {
  switch (status) {
    case FASA_OK:
      return "ok";
    case FASA_ERROR_INTERNAL:
      return "internal";
    case FASA_ERROR_USAGE:
      return "usage";
    case FASA_ERROR_INPUT:
      return "input";
    case FASA_ERROR_BUDGET:
      return "budget";
    case FASA_ERROR_DEVICE:
      return "device";
  }
  return "unknown";
}

const char* fasa_version() { return FASA_VERSION; }
