// What selection costs on an answer's own text: now and then the distribution of its next token is
// compared with that of full attention over the same stored rows. Answers do not depend on it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/divergence.h"

namespace fasa {

class Audit {
 public:
  // Every so many tokens; none: as many as take at most kShare of the time.
  explicit Audit(std::optional<int> every) : every_(every) {}

  // Before a decode step whose first token of the sequence is `token`: if a comparison is due, a
  // fork computes the token with full attention. Returns whether it did; not where memory does not
  // suffice. Throws DeviceError.
  bool before(Model& model, Runtime& runtime, SequenceId sequence, int32_t token);
  // The logits behind `token` of that step.
  AuditCounts after(std::span<const float> logits);
  // A decode step took so long.
  void decoded(double seconds) { decode_seconds_ += seconds; }

 private:
  static constexpr double kShare = 0.05;
  static constexpr int kFirst = 16;  // tokens before the first one, if it goes by time

  bool due(int64_t position) const;

  std::optional<int> every_;
  std::vector<float> full_;      // logits of the comparison under way
  std::optional<int64_t> last_;  // position of the last one; at first that of the token before
  double spent_ = 0, longest_ = 0, decode_seconds_ = 0;
};

}  // namespace fasa
