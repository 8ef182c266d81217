// Table of supported GGUF architectures: how a model's tensor names and metadata keys map to the
// file's.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// Names without ".weight" and ".bias"; in a layer, the part after "blk.3.". A "*" in the model's
// name stands for an expert: the file stores all experts in one tensor.
struct GgufName {
  std::string_view file;
  std::string_view model;
};

struct GgufArchitecture {
  std::string_view name;                       // general.architecture
  std::string_view model_type;                 // config.json's
  std::span<const GgufName> layer_names = {};  // where they are not those of all
  bool experts = false;                        // for files that say that they have some
  bool paired_heads = false;                   // rows of queries and keys lie in rotary pairs
  bool norms_have_base = false;  // what the model adds to norms' weights is in the file's
  bool partial_rotary = false;   // rope.dimension_count may be less than a head
  std::string_view activation = "silu";

  // Throws InputError for a file of another one.
  static const GgufArchitecture& of(const GgufHeader& header);
  // "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name that is unknown keeps
  // its text behind "model.", where no config asks for it.
  std::string model_name(std::string_view tensor) const;
};

}  // namespace fasa
