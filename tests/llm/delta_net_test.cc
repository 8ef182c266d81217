// Layers with linear attention on every instruction set of the processor (delta_case.h).
#include <gtest/gtest.h>

#include "kernels/cpu/model/linear_calls.h"
#include "tests/kernels/delta_case.h"

namespace fasa {
namespace {

using namespace delta_case;

RunCall on(cpu::Target target) {
  return [target](const LinearCall& call) { cpu::run_linear(call, target); };
}
RunCall on_this() { return on(cpu::active_target()); }

TEST(DeltaNet, EqualsTheOracleOnEveryTarget) {
  for (const LinearShape& shape : kShapes) {
    for (const cpu::Target target : cpu::supported_targets()) {
      SCOPED_TRACE(cpu::target_name(target));
      expect_the_oracle(on(target), shape);
    }
  }
}

TEST(DeltaNet, OneToken) { expect_one_token(on_this()); }
TEST(DeltaNet, NoTokens) { expect_nothing_of_no_tokens(on_this()); }
TEST(DeltaNet, InputsOfZeros) { expect_zeros_of_zeros(on_this()); }

TEST(DeltaNet, SameBitsWhateverTheChunks) {
  for (const cpu::Target target : cpu::supported_targets()) {
    SCOPED_TRACE(cpu::target_name(target));
    expect_same_bits_in_chunks(on(target), kShapes[0]);
    expect_same_bits_in_chunks(on(target), in_bf16(kShapes[0]));
  }
}

TEST(DeltaNet, SameBitsTokenByToken) {
  const Inputs inputs(kShapes[0], 200);
  const Result whole = run_all(on_this(), inputs, {{200}});
  const Result parts = run_all(on_this(), inputs, std::vector<Chunk>(200, Chunk{1}));
  EXPECT_EQ(parts.out, whole.out);
  EXPECT_EQ(parts.cut, whole.cut);
}

TEST(DeltaNet, DecodedTokensAdvanceOneByOne) { expect_decoded_one_by_one(on_this()); }
TEST(DeltaNet, DraftsThatDoNotStayLeaveNoTrace) {
  for (const LinearShape& shape : kShapes) {
    expect_no_trace_of_drafts(on_this(), shape);
    expect_no_trace_of_drafts(on_this(), in_bf16(shape));
  }
}

TEST(DeltaNet, SavesTheStateAtACut) { expect_saved_at_a_cut(on_this()); }
TEST(DeltaNet, SequencesAreIndependent) { expect_independent_sequences(on_this()); }
TEST(DeltaNet, AGateScalesByItsSigmoid) { expect_gated(on_this()); }

}  // namespace
}  // namespace fasa
