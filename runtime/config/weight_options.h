// How a model's matrices are stored in memory.
#pragma once

#include <cstdint>
#include <optional>

namespace fasa {

// Format to which 16- or 32-bit matrices are rounded at load.
enum class WeightRounding : uint8_t { kAsIs, kInt8, kInt4 };
// Format of the activations that decode multiplies with packed weights.
enum class DecodeActivations : uint8_t { kModel, kInt8 };
// Location of the routed experts' weights. kHost: chosen ones are read over the link.
enum class ExpertLocation : uint8_t { kDevice, kHost };

struct WeightOptions {
  WeightRounding rounding = WeightRounding::kAsIs;
  int group = 64;  // inputs per scale: 32, 64, 128
  // Format of the projection to logits, kAsIs or kInt8; none: int8 if other matrices are rounded.
  std::optional<WeightRounding> head;
  DecodeActivations activations = DecodeActivations::kModel;
  ExpertLocation experts = ExpertLocation::kDevice;
  bool mtp_head = false;  // reads the head of multi-token prediction too

  bool operator==(const WeightOptions&) const = default;
  WeightRounding head_rounding() const {
    const bool rounded = rounding != WeightRounding::kAsIs;
    return head.value_or(rounded ? WeightRounding::kInt8 : WeightRounding::kAsIs);
  }
};

}  // namespace fasa
