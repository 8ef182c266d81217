// Log-probabilities of a model's choices.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/serve/generation_request.h"

namespace fasa::serve {

// `id` and the `top` most probable of logits [vocab], best first, ties by id. Sums are f64, in the
// order of ids: the same on every machine.
TokenChoice with_logprobs(std::span<const float> logits, int32_t id, int top);

}  // namespace fasa::serve
