// A select's last kernel (select_inl.h), for a low-bit set by page: takes the set's tokens out of
// their pages' scores, a warp per page.
#pragma once

#include "kernels/cuda/select/select_kernel_inl.h"

namespace fasa::cuda {

struct TakeOutKernel : SelectKernel {
  static constexpr const char* kName = "select take out";
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 16;  // per head
  static constexpr int kResidentBlocks = 8;

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch);
    if (!head.scores()) return;
    if (simt::block_x() == 0 && simt::thread_index() == 0) {
      head.set_page_count(head.plan().pages());
    }
    constexpr int kWarps = kThreads / simt::kWarpThreads;
    const int32_t size = head.plan().budget;
    for (int32_t entry = simt::block_x() * kWarps + simt::warp(); entry < size;
         entry += simt::grid_x() * kWarps) {
      const int page = head.set()[entry] / kPageTokens;
      if (entry > 0 && head.set()[entry - 1] / kPageTokens == page) continue;
      const uint32_t taken = taken_of(head, entry, size, page);
      for (int h = 0; h < head.group(); ++h) {
        take_out(head.low_bit_page(h, page - head.first_page()), head, taken);
      }
    }
  }

 private:
  // Which of this lane's two tokens of the page are in the set, whose entries for the page begin
  // at `entry`: a mask of their codes' words.
  FASA_DEVICE static uint32_t taken_of(const SelectHead& head, int32_t entry, int32_t size,
                                       int page) {
    uint64_t tokens = 0;  // a bit for each
    for (int32_t at = entry + simt::lane(); at < entry + kPageTokens; at += simt::kWarpThreads) {
      const int32_t position = at < size ? head.set()[at] : -1;
      if (position >= 0 && position / kPageTokens == page) {
        tokens |= uint64_t{1} << position % kPageTokens;
      }
    }
    for (int lanes = simt::kWarpThreads / 2; lanes > 0; lanes /= 2) {
      tokens |= simt::shuffle_xor(tokens, lanes);
    }
    const auto two = static_cast<uint32_t>(tokens >> 2 * simt::lane());
    return ((two & 1) != 0 ? 0xffffu : 0u) | ((two & 2) != 0 ? 0xffff0000u : 0u);
  }

  // The maximum becomes that of the remaining codes' scores, to which the codes are made relative;
  // scores that are too low for a code stay so.
  FASA_DEVICE void take_out(int64_t page, const SelectHead& head, uint32_t taken) const {
    constexpr auto kNone = static_cast<uint16_t>(kNoScoreCode);
    uint32_t& word = head.low_bit_codes(page)[simt::lane()];
    const uint32_t left = (word & ~taken) | ((kNone | uint32_t{kNone} << 16) & taken);
    int codes[2] = {static_cast<int16_t>(left & 0xffffu), static_cast<int16_t>(left >> 16)};
    const int top = simt::warp_max(codes[0] > codes[1] ? codes[0] : codes[1]);
    if (simt::lane() == 0) {
      float& maximum = params.low_bit_pages.maxima[page];
      maximum = top > kLowestScoreCode ? maximum + static_cast<float>(top) * (1 / kScoreUnits)
                                       : -infinity();
    }
    if (top > kLowestScoreCode) {
      for (int& code : codes) code -= code > kLowestScoreCode ? top : 0;
    }
    word = static_cast<uint16_t>(codes[0]) | uint32_t{static_cast<uint16_t>(codes[1])} << 16;
  }
};

}  // namespace fasa::cuda
