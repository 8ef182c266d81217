// Table of supported GGUF architectures: how a model's tensor names and metadata keys map to the
// file's.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// Names without ".weight" and ".bias", or whole ones with another end; names in a layer without
// "blk.N.". A "*" in the model's name
// stands for an expert's number: the file stores all experts in one tensor.
struct GgufName {
  std::string_view file;
  std::string_view model;
};

struct GgufArchitecture {
  std::string_view name;                       // general.architecture
  std::string_view model_type;                 // config.json's
  std::span<const GgufName> layer_names = {};  // names that differ from the common ones
  bool experts = false;                        // true if files may have experts
  bool paired_heads = false;     // rows of queries and keys are stored in rotary pairs
  bool norms_have_base = false;  // stored norm weights include ModelFamily::norm_base
  bool partial_rotary = false;   // rope.dimension_count may be less than a head
  std::string_view activation = "silu";

  // Throws InputError for an unknown architecture.
  static const GgufArchitecture& of(const GgufHeader& header);
  // "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". An unknown name gets the
  // prefix "model."; no config asks for it.
  std::string model_name(std::string_view tensor) const;
};

}  // namespace fasa
