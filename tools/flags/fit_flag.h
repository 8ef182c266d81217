// The flag --fit of commands that load a model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/config.h"
#include "runtime/fasa.hpp"
#include "runtime/llm/config/model_config.h"

namespace fasa {

class FitFlag {
 public:
  void add_to(CLI::App& command);
  bool given() const { return given_; }

  struct Subject {
    std::string path;  // of the model; "" = random weights
    const ModelConfig& model;
    std::optional<DType> dtype;
    int64_t tokens = 0;        // requested
    int64_t min_tokens = 1;    // fewer are refused
    int step_tokens = 512;     // largest step that appends
    int model_tokens = 512;    // largest step through the model
    uint64_t other_bytes = 0;  // other device memory in use
  };
  // Does nothing without the flag. Otherwise reduces the config's settings and the subject's tokens
  // to fit into `device`, and prints each reduction. Throws BudgetError.
  void apply(const Device& device, Config* config, Subject* subject) const;

 private:
  bool given_ = false;
};

}  // namespace fasa
