// Identifies everything but the tokens that keys and values depend on. Sessions of another
// fingerprint are unusable.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/row_format.h"
#include "runtime/base/dtype.h"
#include "runtime/base/stream_view.h"
#include "runtime/config/config.h"

namespace fasa::serve {

struct SessionSubject {
  std::string path;     // the model's: a folder, or a GGUF file
  std::string version;  // the program's
  DeviceKind device;
  DType dtype;  // of weights and activations
  RowDType row_dtype;
  std::span<const int16_t> slice_dims;
  bool short_factors = false;  // of longrope: stored keys are rotated by one of two sets
};

// Covers the model's files (weights by name, size and time, others by content), the selection
// options and the weight format. Throws InputError if a file cannot be read.
std::string session_fingerprint(const SessionSubject& subject, const Config& config);

}  // namespace fasa::serve
