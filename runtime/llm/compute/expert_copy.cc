#include "runtime/llm/compute/expert_copy.h"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace fasa {
namespace {

// Calls visit(address, bytes) for each array of the routed experts that is where their weights are;
// the address may be changed.
template <typename Layer, typename Visit>
void for_each_array(Layer& layer, const Visit& visit) {
  for (auto& expert : layer.routed) {
    for (auto* matrix : {&expert.gate_up, &expert.down}) {
      for (auto& part : matrix->parts()) {
        visit(part.data, part.bytes());
        if (part.order == nullptr) continue;
        const auto& packed = std::get<PackedLinear>(part.linear);
        visit(part.order, packed.order().size() * sizeof(int32_t));
      }
    }
  }
}

}  // namespace

std::span<const std::byte> experts_on_host(const ExpertLayerWeights& layer) {
  if (!layer.on_host || !layer.present()) return {};
  const std::byte* begin = layer.routed.front().gate_up.data();
  const std::byte* end = begin;
  for_each_array(layer, [&](const auto* array, size_t bytes) {
    const auto* const first = reinterpret_cast<const std::byte*>(array);
    begin = std::min(begin, first);
    end = std::max(end, first + bytes);
  });
  return {begin, end};
}

ExpertLayerWeights with_experts_at(const ExpertLayerWeights& layer, const std::byte* copy) {
  const ptrdiff_t by = copy - experts_on_host(layer).data();
  ExpertLayerWeights moved = layer;
  moved.on_host = false;
  for_each_array(moved, [by](auto*& array, size_t) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(
        reinterpret_cast<const std::byte*>(array) + by);
  });
  return moved;
}

}  // namespace fasa
