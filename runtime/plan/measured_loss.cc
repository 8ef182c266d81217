#include "runtime/plan/measured_loss.h"

#include <array>

namespace fasa {
namespace {

constexpr std::string_view kGemma = "Gemma 3 270M";
constexpr std::string_view kSmol = "SmolLM2-135M-Instruct";
constexpr SliceDType k2 = SliceDType::kInt2;
constexpr SliceDType k4 = SliceDType::kInt4;

// docs/results/eval.md, "Loss against length": commands and texts.
constexpr std::array kMeasured{
    MeasuredLoss{{.rows = 256, .codes = k2}, 0.266, 24000, kGemma},
    MeasuredLoss{{.rows = 320, .low_bit_tokens = 1024, .codes = k2}, 0.0462, 24000, kGemma},
    MeasuredLoss{{.rows = 1024, .low_bit_tokens = 4096, .codes = k2}, 0.0117, 24000, kGemma},
    MeasuredLoss{{.rows = 128, .all_others = true, .codes = k2}, 0.0164, 24000, kGemma},
    MeasuredLoss{{.rows = 320, .all_others = true, .codes = k2}, 0.0098, 24000, kGemma},
    MeasuredLoss{{.rows = 1024, .all_others = true, .codes = k2}, 0.0019, 24000, kGemma},
    MeasuredLoss{{.rows = 128, .all_others = true, .codes = k4}, 0.0003, 24000, kGemma},
    MeasuredLoss{{.rows = 320, .all_others = true, .codes = k4}, 0.0004, 24000, kGemma},
    MeasuredLoss{{.rows = 512, .all_others = true, .codes = k2}, 0.0006, 8192, kSmol},
};

}  // namespace

std::optional<MeasuredLoss> measured_loss(const AttendedTokens& attended) {
  std::optional<MeasuredLoss> best;
  for (const MeasuredLoss& loss : kMeasured) {
    if (loss.attended == attended && (!best || loss.context > best->context)) best = loss;
  }
  return best;
}

}  // namespace fasa
