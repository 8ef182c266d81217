// The head of multi-token prediction in a model's files: from the hidden state of a token and the
// token behind it, it predicts the token after that.
#pragma once

#include <string>

#include "runtime/llm/config/model_config.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// The head as a model of one layer, with full attention, experts if `trunk` has some. `trunk`: the
// model whose files carry it.
ModelConfig mtp_config(const ModelConfig& trunk);

// Begins the names of the head's tensors where they have a root of their own.
inline constexpr const char* kMtpRoot = "mtp.";

// Names of the head's tensors, without ".weight".
struct MtpNames {
  std::string layer;       // begins the names of its layer's tensors
  std::string embeddings;  // the trunk's, if the head has none of its own
  std::string token_norm;  // of embeddings
  std::string state_norm;  // of hidden states
  std::string projection;  // of both
  std::string final_norm;
  std::string output;  // projection to logits; "": the trunk's
  std::string prefix;  // begins the names of all tensors that the head alone has

  // `head`: from mtp_config(). Throws InputError: `files` have no head, or the family's are not
  // read.
  static MtpNames find(const WeightSource& files, const ModelConfig& head);
};

}  // namespace fasa
