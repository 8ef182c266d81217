// What `fasa --version` says.
#pragma once

#include <string>

namespace fasa {

// "fasa 0.1.0 (commit 049bf192, kernels for AVX-512 and VNNI, without CUDA)".
std::string version_line();

}  // namespace fasa
