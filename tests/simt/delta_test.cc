// The kernels of layers with linear attention, interpreted (delta_case.h).
#include <gtest/gtest.h>

#include "kernels/cuda/model/convolve_inl.h"
#include "kernels/cuda/model/delta_inl.h"
#include "tests/kernels/delta_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

using namespace delta_case;

class DeltaBody : public ::testing::TestWithParam<SimtRun> {
 protected:
  RunCall on(int capability = 90) {
    return [this, capability](const LinearCall& call) {
      const SimtLauncher launch(interpreter_, 2, capability);
      std::visit([&](const auto& params) { cuda::start(params, launch); }, call);
    };
  }
  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
};

TEST_P(DeltaBody, EqualsTheOracle) {
  for (const LinearShape& shape : kShapes) {
    const bool takes_long = shape.key_dim == DeltaNetParams::kMaxKeyDim;
    if (takes_long && GetParam().order == SimtInterpreter::Order::kRandom) continue;
    expect_the_oracle(on(), shape);
  }
}

// Thread blocks have fewer columns there, with the same bits.
TEST_P(DeltaBody, EqualsItselfOnOldGpus) {
  const LinearShape shape = shape_of(1, 1, 128, 40, 4);
  expect_the_oracle(on(75), shape);
  const Inputs inputs(shape, 70);
  EXPECT_EQ(run_all(on(75), inputs, {{70}}).out, run_all(on(), inputs, {{70}}).out);
}

TEST_P(DeltaBody, OneToken) { expect_one_token(on()); }
TEST_P(DeltaBody, NoTokens) { expect_nothing_of_no_tokens(on()); }
TEST_P(DeltaBody, InputsOfZeros) { expect_zeros_of_zeros(on()); }

TEST_P(DeltaBody, SameBitsWhateverTheChunks) {
  expect_same_bits_in_chunks(on(), shape_of(1, 2, 10, 37, 4));
  expect_same_bits_in_chunks(on(), in_bf16(shape_of(1, 2, 7, 14, 3)));
}

TEST_P(DeltaBody, DecodedTokensAdvanceOneByOne) { expect_decoded_one_by_one(on()); }
TEST_P(DeltaBody, SavesTheStateAtACut) { expect_saved_at_a_cut(on()); }
TEST_P(DeltaBody, SequencesAreIndependent) { expect_independent_sequences(on()); }
TEST_P(DeltaBody, DroppedDraftsLeaveNoTrace) {
  expect_no_trace_of_drafts(on(), shape_of(1, 2, 10, 37, 4));
  expect_no_trace_of_drafts(on(), in_bf16(by_turns(shape_of(2, 4, 7, 14, 3))));
}
TEST_P(DeltaBody, AGateScalesByItsSigmoid) { expect_gated(on()); }

INSTANTIATE_TEST_SUITE_P(Orders, DeltaBody, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
