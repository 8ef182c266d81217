// Launches of kernels with a thread per element: blocks of a row's elements in x, rows in y.
#pragma once

#include "kernels/cuda/simt.h"

namespace fasa::cuda {

// Several launches if there are more rows than a grid's y allows. from(first): the kernel for the
// rows from `first` on.
template <typename Launcher, typename From>
void launch_by_rows(int64_t size, int64_t rows, const Launcher& launch, const From& from) {
  constexpr int64_t kMaxRows = 65535;
  constexpr int kThreads = decltype(from(0))::kThreads;
  for (int64_t first = 0; first < rows; first += kMaxRows) {
    const int64_t left = rows - first;
    launch(from(first), {.x = static_cast<int>((size + kThreads - 1) / kThreads),
                         .y = static_cast<int>(left < kMaxRows ? left : kMaxRows)});
  }
}

}  // namespace fasa::cuda
