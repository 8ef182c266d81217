// d = F(a, b, ...) in each lane; the result is defined where all operands are.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "tests/support/ptx/warp.h"

namespace fasa::ptx {

template <typename F, typename To, typename... From, size_t... I>
void map_operands(Warp& warp, const Instruction& in, uint32_t lanes, std::index_sequence<I...>) {
  To* const result = warp.at<To>(in.slot[0]);
  const std::tuple<const From*...> operands{warp.at<From>(in.slot[I + 1])...};
  const uint32_t known = (warp.defined(in.slot[I + 1]) & ...);
  for_lanes(lanes,
            [&](int lane) { result[lane] = static_cast<To>(F()(std::get<I>(operands)[lane]...)); });
  warp.define(in.slot[0], lanes, known);
}

template <typename F, typename To, typename... From>
void map_lanes(Warp& warp, const Instruction& in, uint32_t lanes) {
  map_operands<F, To, From...>(warp, in, lanes, std::index_sequence_for<From...>());
}

}  // namespace fasa::ptx
