// Flags that say how a model's weights are kept.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "runtime/llm/weight_options.h"

namespace fasa {

class WeightFlags {
 public:
  void add_to(CLI::App& command);
  // Throws UsageError naming the flag.
  WeightOptions options() const;

 private:
  std::string weights_ = "as-is";
  std::string lm_head_ = "auto";
  std::string activations_ = "model";
  int group_ = 64;
};

}  // namespace fasa
