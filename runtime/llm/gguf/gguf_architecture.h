// Table of supported GGUF architectures: how a model's tensor names and metadata keys map to the
// file's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/llm/family/model_family.h"
#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// How a token's expert weights are made if the file does not say it.
enum class GgufExperts : uint8_t { kNone, kNormalised, kPlain };

struct GgufArchitecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // config.json's
  GgufExperts experts = GgufExperts::kNone;
  bool paired_heads = false;     // rows of queries and keys are stored in rotary pairs
  bool norms_have_base = false;  // stored norm weights include ModelFamily::norm_base

  // Throws InputError for an unknown architecture, and for files of other kinds: projectors,
  // adapters, importance matrices.
  static const GgufArchitecture& of(const GgufHeader& header);
  const ModelFamily& family() const;
  // Layers of the model without those of multi-token prediction, which stand behind them and may be
  // counted by block_count or not.
  int64_t layers(const GgufHeader& header) const;
  int64_t predicting_layers(const GgufHeader& header) const;  // of those, which the file has
  // "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A "*" stands for the number
  // of an expert or head: the file stores all of them in one tensor. An unknown name in a layer or
  // without a dot gets the prefix of the model, whose config does not ask for it; names of other
  // parts ("v.", "mm.") stay as they are.
  std::string model_name(std::string_view tensor) const;
};

}  // namespace fasa
