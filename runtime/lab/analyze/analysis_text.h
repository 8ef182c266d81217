// The input of an analysis: a text with planted strings, their repeats after it, and the positions
// of its queries.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/capture/calibration_data.h"

namespace fasa {

// SnapKV's observation window: queries up to and including the anchor's.
constexpr int kObservationWindow = 32;

struct AnalysisText {
  std::string name;
  CalibrationData data;         // positions: all observation windows and all probes
  std::vector<size_t> anchors;  // indices of data.positions: queries on the text, rising
  std::vector<size_t>
      probes;  // indices of data.positions: queries at the repeats, with long-range attention
  int64_t text_end = 0;  // the repeats begin here
};

// `queries` anchors drawn from the last third of the first `tokens` tokens of `ids`, strings and
// repeats included; half as many probes. Throws InputError naming `name` for a text shorter than
// `least` tokens.
AnalysisText make_analysis_text(std::string name, std::span<const int32_t> ids, int64_t tokens,
                                int64_t least, int queries, uint64_t seed);

}  // namespace fasa
