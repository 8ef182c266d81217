// The kernels of the build's PTX, for tests that execute them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tests/support/ptx/module.h"

namespace fasa {

// The kernels of a folder of PTX files, by the type of their only parameter.
class PtxLibrary {
 public:
  // Its destructor writes which instructions ran to the folder FASA_PTX_COVERAGE (environment).
  explicit PtxLibrary(const std::string& folder);
  PtxLibrary(const PtxLibrary&) = delete;
  PtxLibrary& operator=(const PtxLibrary&) = delete;
  ~PtxLibrary();

  // The build's PTX for a compute capability x 10: that of `newest`, or of 7.5 below 8.0.
  static PtxLibrary& of(int compute_capability, int newest);

  // Throws ptx::Error if there is no PTX of the kernel.
  const ptx::Entry& entry(const std::type_info& kernel);

 private:
  const std::string folder_;
  std::mutex decoding_;
  std::vector<std::unique_ptr<ptx::Module>> modules_;
  std::map<std::string, std::pair<ptx::Module*, std::string>> entries_;  // by type
};

}  // namespace fasa
