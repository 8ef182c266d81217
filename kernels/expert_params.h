// Parameters of the kernels of expert layers, for devices that have kernels for a model's own work.
//
// A pair is a token and one of its chosen experts. Pairs are sorted by expert, then by token, so
// that an expert's rows are neighbours. The host knows the number of pairs, but only the device
// knows which they are, so that a decode step can be recorded.
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
  int32_t* places = nullptr;   // [tokens, chosen]: indices of a token's pairs, by ascending expert

  constexpr int64_t pairs() const { return tokens * chosen; }
};

// Added to the sum of the chosen weights, which may be 0 where they are made by a sigmoid.
inline constexpr float kMinExpertSum = 1e-20f;

// The router's choice (see ExpertShape, route()): for each token its chosen experts, ascending, and
// their weights. Among equal experts the first is chosen.
struct ChooseExpertsParams {
  static constexpr const char* kName = "choose_experts";
  int64_t tokens = 0;
  int count = 0;
  int chosen = 0;
  int groups = 1;
  int chosen_groups = 1;
  bool normalised = false;
  bool sigmoid = false;  // of the logits, instead of their softmax
  float scale = 1;
  const float* logits = nullptr;  // [tokens, count]
  const float* bias = nullptr;    // [count], or null
  const float* scales = nullptr;  // [count], multiply the weights; or null
  // [count], added to the shares where experts are chosen; or null
  const float* correction = nullptr;
  int32_t* experts = nullptr;  // [tokens, chosen]
  float* weights = nullptr;    // [tokens, chosen]
};

// Chosen experts -> pairs.
struct ArrangeExpertsParams {
  static constexpr const char* kName = "arrange_experts";
  const int32_t* chosen = nullptr;  // [tokens, chosen], ascending
  ExpertPairs pairs;
};

// Row of x that belongs to a pair: the pair's own, or its token's.
enum class PairInput : uint8_t { kPair, kToken };

// Multiplies rows of x, each by its expert's weights -> y [pairs, columns]. `product`: the product
// of one expert, plain rows; its weights are those of `first_expert`. The weights of the `experts`
// experts from there on are weights_step apart. Pairs of other experts are skipped.
struct ProjectExpertsParams {
  static constexpr const char* kName = "project_experts";
  ProjectParams product;
  ExpertPairs pairs;
  PairInput input = PairInput::kToken;
  int first_expert = 0;
  int experts = 0;
};

// The same for packed weights of all experts, read without unpacking: decode. A pair's bits depend
// only on its row and the weights.
struct ProjectPackedExpertsParams {
  static constexpr const char* kName = "project_packed_experts";
  ProjectPackedParams product;
  int64_t panels_step = 0;  // bytes
  int64_t order_step = 0;   // places
  ExpertPairs pairs;
  PairInput input = PairInput::kToken;
};

// mixed = the weighted sum of the results of a token's experts, in their order.
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
