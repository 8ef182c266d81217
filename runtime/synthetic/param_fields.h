// Fields of the kernels' parameters that guesses use; zero and all where the kernels have none.
#pragma once

#include "kernels/params.h"

namespace fasa {

// 0 = the true set; n = a guess made n layers before.
template <typename Params>
int ahead_of(const Params& params) {
  if constexpr (requires { params.ahead; }) {
    return params.ahead;
  } else {
    return 0;
  }
}

// What of the slice is scored.
template <typename Params>
SliceFormat scored_format(const Params& params) {
  const auto& format = params.step.layout.slice;
  if constexpr (requires { format.prefix(params.score_dims); }) {
    return format.prefix(params.score_dims);
  } else {
    return format;
  }
}

// The heads that a gather takes.
template <typename Params, typename Each>
void for_each_gathered_head(const Params& params, int heads, const Each& each) {
  if constexpr (requires { params.stride; }) {
    for (int head = params.first; head < heads; head += params.stride) each(head);
  } else {
    for (int head = 0; head < heads; ++head) each(head);
  }
}

}  // namespace fasa
