// Tensor names of GGUF files: the same for all architectures, apart from a few that have two
// meanings.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/llm/family/model_family.h"

namespace fasa {

// The family's name of a tensor outside layers, without root; empty if there is none. `name`:
// without ".weight" and ".bias".
std::string_view gguf_top_name(const TensorNames& names, std::string_view name);
// The same of a tensor in a layer; for an expert's "<experts>.*.<name>" or, for files that store
// experts one by one ("ffn_gate.3"), "<experts>.3.<name>".
std::string gguf_layer_name(const ModelFamily& family, std::string_view name);
// Names of which the file has the whole, end included.
std::optional<std::string> gguf_whole_name(const ModelFamily& family, std::string_view name);

}  // namespace fasa
