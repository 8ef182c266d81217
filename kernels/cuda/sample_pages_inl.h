// The pages of a head that a select scores first (select_inl.h).
#pragma once

#include "kernels/cuda/select_head_inl.h"

namespace fasa::cuda {

struct SamplePages {
  const SelectHead& head;  // whose stride is above 0

  // The sample, at most kSamplePages.
  FASA_DEVICE int ranked() const {
    return (head.pages() - head.stride() / 2 + head.stride() - 1) / head.stride();
  }
  // The sample plus the first page and the newest two: scored for their maxima, because sinks and
  // the newest tokens tend to have the highest scores.
  FASA_DEVICE int scored() const { return ranked() + kMaximaPages; }

  FASA_DEVICE int at(int i) const {
    const int ranked = this->ranked();
    if (i < ranked) return head.first_page() + head.stride() / 2 + i * head.stride();
    return i == ranked ? head.first_page() : head.end_page() - (i - ranked);
  }
};

}  // namespace fasa::cuda
