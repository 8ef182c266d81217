// The flag --fit of commands that load a model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/config.h"
#include "runtime/fasa.hpp"
#include "runtime/llm/model_config.h"

namespace fasa {

class FitFlag {
 public:
  void add_to(CLI::App& command);
  bool given() const { return given_; }

  struct Subject {
    std::string path;  // of the model; "" = random weights
    const ModelConfig& model;
    std::optional<DType> dtype;
    int64_t tokens = 0;        // wanted
    int64_t min_tokens = 1;    // fewer are of no use
    int step_tokens = 512;     // of the largest step that appends
    int model_tokens = 512;    // of the largest step through the model
    uint64_t other_bytes = 0;  // of device memory
  };
  // Without the flag nothing changes. Else the config's settings and the subject's tokens become
  // what fits `device`, and each thing that was given up is printed. Throws BudgetError.
  void apply(const Device& device, Config* config, Subject* subject) const;

 private:
  bool given_ = false;
};

}  // namespace fasa
