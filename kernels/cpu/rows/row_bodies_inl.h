// The table of the bodies that read rows, over a target's vectors.
#include "kernels/cpu/rows/row_attend_inl.h"
#include "kernels/cpu/rows/row_low_bit_inl.h"
#include "kernels/cpu/rows/row_prefill_inl.h"

namespace fasa::cpu {
namespace {

#ifdef FASA_BF16_DOT
constexpr bool kHasPairs = true;
constexpr auto kPairs = prefill_pairs;
#else
constexpr bool kHasPairs = false;
constexpr void (*kPairs)(const PageTask&) = nullptr;
#endif

template <int... kBits>
constexpr RowBodies bodies_of(CodeWidths<kBits...>) {
  return {
      {attend_tile<kRowF32>, attend_tile<kRowF16>, attend_tile<kRowBF16>, attend_tile<kRowInt8>},
      {prefill_page<kRowF32>, prefill_page<kRowF16>, prefill_page<kRowBF16>,
       prefill_page<kRowInt8>},
      {nullptr, nullptr, kPairs, nullptr},
      false,
      {expand<kRowF32>, expand<kRowF16>, expand<kRowBF16>, expand<kRowInt8>},
      merge,
      {attend_low_bit<kBits>...},
      kHasPairs};
}
constexpr RowBodies kRowBodies = bodies_of(AllCodeWidths());

}  // namespace
}  // namespace fasa::cpu
