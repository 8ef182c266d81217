// A copy of a layer's routed experts on the device, while a chunk of a prompt goes through it:
// experts on the host cross the link once a layer and chunk, not once a piece.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/llm/compute/weights.h"

namespace fasa {

// The memory of a layer's routed experts on the host; empty if they are not there.
std::span<const std::byte> experts_on_host(const ExpertLayerWeights& layer);
// The layer as if that memory were at `copy`.
ExpertLayerWeights with_experts_at(const ExpertLayerWeights& layer, const std::byte* copy);

}  // namespace fasa
