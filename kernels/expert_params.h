// What the kernels of layers of experts take, where a device has kernels for a model's own work.
//
// A pair is a token and one of the experts that it goes through. Pairs lie sorted by expert, then
// by token, so that an expert's rows are neighbours, and how many there are is known to the host:
// which they are, the device finds out alone, and a decode step can be recorded.
#pragma once

#include <cstdint>

#include "kernels/model_params.h"
#include "kernels/packed_params.h"

namespace fasa {

struct ExpertPairs {
  int64_t tokens = 0;
  int chosen = 0;              // experts of a token
  int count = 0;               // experts of the layer
  int32_t* experts = nullptr;  // [pairs]
  int32_t* rows = nullptr;     // [pairs]: the token
  int32_t* first = nullptr;    // [count + 1]: an expert's first pair
  int32_t* places = nullptr;   // [tokens, chosen]: a token's pairs, by ascending expert

  constexpr int64_t pairs() const { return tokens * chosen; }
};

// The router's choice (see ExpertShape, route()): of each token the chosen experts, ascending, and
// their weights. Of equal ones the first is chosen.
struct ChooseExpertsParams {
  static constexpr const char* kName = "choose_experts";
  int64_t tokens = 0;
  int count = 0;
  int chosen = 0;
  int groups = 1;
  int chosen_groups = 1;
  bool normalised = false;
  float scale = 1;
  const float* logits = nullptr;  // [tokens, count]
  const float* bias = nullptr;    // [count], or null
  int32_t* experts = nullptr;     // [tokens, chosen]
  float* weights = nullptr;       // [tokens, chosen]
};

// What was chosen -> the pairs.
struct ArrangeExpertsParams {
  static constexpr const char* kName = "arrange_experts";
  const int32_t* chosen = nullptr;  // [tokens, chosen], ascending
  ExpertPairs pairs;
};

// Where the rows of x are: a pair's own, or its token's.
enum class PairInput : uint8_t { kPair, kToken };

// Rows of x, each by its expert's weights -> y [pairs, columns]. `product`: one expert's, of plain
// rows; its weights those of `first_expert`, from which another `experts` are weights_step apart.
// Pairs of other experts are left out.
struct ProjectExpertsParams {
  static constexpr const char* kName = "project_experts";
  ProjectParams product;
  ExpertPairs pairs;
  PairInput input = PairInput::kToken;
  int first_expert = 0;
  int experts = 0;
};

// The same by packed weights as they lie, of all experts: decode. A pair's bits depend on its row
// and weights alone.
struct ProjectPackedExpertsParams {
  static constexpr const char* kName = "project_packed_experts";
  ProjectPackedParams product;
  int64_t panels_step = 0;  // bytes
  int64_t order_step = 0;   // places
  ExpertPairs pairs;
  PairInput input = PairInput::kToken;
};

// mixed = the weighted sum of what a token's experts give, in their order.
struct MixExpertsParams {
  static constexpr const char* kName = "mix_experts";
  ExpertPairs pairs;
  int64_t size = 0;
  const float* weights = nullptr;  // [tokens, chosen]
  const float* results = nullptr;  // [pairs, size]
  const float* bias = nullptr;     // [count, size], `bias_step` elements apart; or null
  int64_t bias_step = 0;
  float* mixed = nullptr;  // [tokens, size]
};

}  // namespace fasa
